// Package fault tests brokers while the store, the network or another broker fails: outages, lost answers,
// limits, simulated runs. It uses the public API of the broker.
package fault
