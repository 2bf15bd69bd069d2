package main

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/parquet-go/parquet-go"
)

// Archive is a directory of Parquet files. Each file has the samples of one slice, which is a day, sorted by series and
// time.
type Archive struct{ dir string }

// OpenArchive returns the archive in the directory dir, and creates the directory if it does not exist.
func OpenArchive(dir string) (Archive, error) { return Archive{dir}, os.MkdirAll(dir, 0o755) }

func (a Archive) file(s Slice) string {
	return filepath.Join(a.dir, s.Begin().Format(time.DateOnly)+".parquet")
}

// Has reports whether the archive has the slice s, which is a day. A slice in the archive is always complete.
func (a Archive) Has(s Slice) (bool, error) {
	_, err := os.Stat(a.file(s))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Keep writes the samples of a slice, which is a day, into the archive. If Keep returns nil, the whole slice is on the
// disk. If Keep returns an error, the archive does not have the slice.
func (a Archive) Keep(s Slice, samples iter.Seq2[Sample, error]) (err error) {
	unfinished := a.file(s) + ".unfinished"
	f, err := os.Create(unfinished)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f, samples), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	if err := os.Rename(unfinished, a.file(s)); err != nil {
		return err
	}
	dir, err := os.Open(a.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// batch is the number of samples that are passed to the Parquet library, or read from it, at once. rowGroup is the
// number of samples that the library keeps in memory before it writes them.
const batch, rowGroup = 1000, 100_000

func write(to io.Writer, samples iter.Seq2[Sample, error]) error {
	w := parquet.NewGenericWriter[Sample](to, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(rowGroup),
		parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending("series"), parquet.Ascending("at"))))
	rows := make([]Sample, 0, batch)
	for s, err := range samples {
		if err != nil {
			return err
		}
		if rows = append(rows, s); len(rows) == batch {
			if _, err := w.Write(rows); err != nil {
				return err
			}
			rows = rows[:0]
		}
	}
	if _, err := w.Write(rows); err != nil {
		return err
	}
	return w.Close()
}

// Read returns the samples of a slice in the archive, in the order of series and time.
func (a Archive) Read(s Slice) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		f, err := os.Open(a.file(s))
		if err != nil {
			yield(Sample{}, err)
			return
		}
		defer f.Close()
		r := parquet.NewGenericReader[Sample](f)
		defer r.Close()
		for rows := make([]Sample, batch); ; {
			n, err := r.Read(rows)
			for _, row := range rows[:n] {
				row.At = row.At.UTC()
				if !yield(row, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Sample{}, err)
				return
			}
		}
	}
}
