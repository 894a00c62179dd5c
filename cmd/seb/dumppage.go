package main

import (
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// pageItem shows an entry about a page.
func (d *dumper) pageItem(i int, x *format.PageStored) {
	d.line("item", "%d: the oldest %d idempotency keys that are in no page, from %x on, are in %s: %d bytes at %d, CRC %08x", i, x.Keys, x.First, x.Ref.Key(), x.Size, x.Pos, x.CRC)
}

// page shows a page: the appends in its section.
func (d *dumper) page(b []byte, name string) error {
	cluster, p, err := format.DecodePageHead(b)
	if err != nil {
		return err
	}
	d.line("cluster", "%v", cluster)
	d.line("begun after", "slot %d%s", p.Ref.Seq, d.standsAt(name, p.Ref.Key()))
	if int64(p.Ref.Size) != int64(len(b)) {
		d.line("size", "%s", d.mark(true, "it has another size than its head says"))
		return nil
	}
	section := b[p.Pos:]
	bent := p.Check(section) != nil
	d.line("section", "of kind %d: %d idempotency keys, %d bytes at %d, CRC %08x%s", format.SectionKeys, p.Keys, p.Size, p.Pos, p.CRC, d.mark(bent, "its bytes have another CRC"))
	list, err := state.DecodeKeyed(section)
	if err != nil {
		return err
	}
	for _, k := range list {
		d.line("key", "%x at %v, request %x", k.Key, micros(k.Time), k.Print)
		for _, r := range k.Ranges {
			d.line("", "partition %d: offsets %d to %d", r.Partition, r.Base, r.Base+seb.Offset(r.Count)-1)
		}
	}
	if len(list) != int(p.Keys) {
		d.line("", "%s", d.mark(true, "it has another number of keys"))
	}
	return nil
}

// pages shows what a checkpoint says about idempotency keys.
func (d *dumper) pages(s *state.State) {
	d.line("keys", "%d appends are remembered by their idempotency keys", s.KeyedCount(s.Time()))
	for _, p := range s.Pages() {
		d.line("page", "%d appends before those, of which the oldest may be forgotten: %s, %d bytes at %d, CRC %08x", p.Keys, p.Ref.Key(), p.Size, p.Pos, p.CRC)
	}
}
