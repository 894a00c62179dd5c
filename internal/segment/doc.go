// Package segment builds segments, and finds batches in them. A segment is an object with the batches of many commits,
// sorted by topic, partition and offset. docs/rfcs/0003-segments.md says what segments are for; internal/format has the
// layout of the head and of the rows of the table of locations.
//
// A [Builder] gets batches in this order, and merges neighbours of one partition. It works in memory: a segment has at
// most some tens of MiB. [Check] reads a whole segment, and compares its records with those that went in.
package segment
