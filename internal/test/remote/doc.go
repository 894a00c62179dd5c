// Package remote tests package client with whole brokers behind their HTTP API.
package remote
