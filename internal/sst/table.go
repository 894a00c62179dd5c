package sst

import "iter"

// Table is a table that can be read. It is not safe for concurrent use.
type Table struct {
	index *Index
	get   func(Block) ([]byte, error)
	rows  uint64 // according to the footer, if whole is set
	whole bool

	// last is block at, which was read last: nil if none was. Whoever reads row after row in the order of keys needs it again.
	last *Rows
	at   int
}

// NewTable returns a table with an index. get returns the bytes of a block, as stored; the caller of a method of the table gets
// its errors.
func NewTable(x *Index, get func(Block) ([]byte, error)) *Table { return &Table{index: x, get: get} }

// Open returns a table that is in memory. b is exactly the table; the Table keeps slices of it.
func Open(b []byte) (*Table, error) {
	if len(b) < FooterSize {
		return nil, corrupt("a table of %d bytes", len(b))
	}
	end := len(b) - FooterSize
	f, err := DecodeFooter(b[end:])
	if err != nil {
		return nil, err
	}
	if int64(f.IndexSize) > int64(end) {
		return nil, corrupt("an index of %d bytes does not fit into a table of %d", f.IndexSize, len(b))
	}
	blocks := end - int(f.IndexSize)
	x, err := DecodeIndex(b[blocks:end], f.IndexCRC, int64(blocks))
	if err != nil {
		return nil, err
	}
	if f.Blocks != uint32(len(x.block)) || f.Rows < uint64(f.Blocks) {
		return nil, corrupt("the footer says %d rows in %d blocks, the index has %d blocks", f.Rows, f.Blocks, len(x.block))
	}
	get := func(blk Block) ([]byte, error) { return b[blk.Pos : blk.Pos+blk.Size], nil }
	return &Table{index: x, get: get, rows: f.Rows, whole: true}, nil
}

// Rows returns the number of rows that a table has according to its footer; [Open] has read it.
func (t *Table) Rows() uint64 { return t.rows }

// Floor returns the row with the greatest key that is not above key. ok is false if all keys are above.
func (t *Table) Floor(key []byte) (row Row, ok bool, err error) {
	i, ok := t.index.Find(key)
	if !ok {
		return Row{}, false, nil
	}
	r, err := t.block(i)
	if err != nil {
		return Row{}, false, err
	}
	row, ok = r.Floor(key)
	if !ok {
		return Row{}, false, corrupt("the first key of block %d is above that of the index", i)
	}
	return row, true, nil
}

// From iterates over the rows from the greatest key that is not above key on; over all rows if all keys
// are above. The key of a row is valid until the next row. An error ends the iteration.
func (t *Table) From(key []byte) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		first, ok := t.index.Find(key)
		if !ok {
			first = 0
		}
		for i := first; i < len(t.index.block); i++ {
			r, err := t.block(i)
			if err != nil {
				yield(Row{}, err)
				return
			}
			var skip []byte
			if floor, found := r.Floor(key); i == first && found {
				skip = floor.Key
			}
			for row := range r.All() {
				if string(row.Key) >= string(skip) && !yield(row, nil) {
					return
				}
			}
		}
	}
}

// All iterates over all rows, and checks that they are as many as the footer says, if [Open] has read it, and that the keys ascend
// from block to block. The key of a row is valid until the next row. An error ends the iteration.
func (t *Table) All() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var rows uint64
		var last []byte
		for i := range t.index.block {
			r, err := t.block(i)
			if err != nil {
				yield(Row{}, err)
				return
			}
			for row := range r.All() {
				if string(row.Key) <= string(last) {
					yield(Row{}, corrupt("the keys don't ascend from block %d to block %d", i-1, i))
					return
				}
				last = append(last[:0], row.Key...)
				rows++
				if !yield(row, nil) {
					return
				}
			}
		}
		if t.whole && rows != t.rows {
			yield(Row{}, corrupt("it has %d rows instead of %d", rows, t.rows))
		}
	}
}

// block returns the rows of block i, whose first key must be the one in the index.
func (t *Table) block(i int) (*Rows, error) {
	if t.last != nil && t.at == i {
		return t.last, nil
	}
	blk := t.index.block[i]
	b, err := t.get(blk)
	if err != nil {
		return nil, err
	}
	r, err := DecodeBlock(b, blk)
	if err != nil {
		return nil, err
	}
	for row := range r.All() {
		if string(row.Key) != string(t.index.first[i]) {
			return nil, corrupt("block %d begins with the key %x instead of %x", i, row.Key, t.index.first[i])
		}
		break
	}
	t.last, t.at = r, i
	return r, nil
}
