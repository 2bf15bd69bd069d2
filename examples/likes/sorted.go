package main

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/listing"
)

// sortedSets keeps all sets in one bucket. A key is the name of the set, followed by the member. So a set is one
// interval of keys: small sets share a partition, and evenkeel cuts large sets into several partitions.
type sortedSets struct {
	likes *listing.Bucket
	// salts is the number of intervals of keys over which each set is spread, or 0 if a set is one interval.
	salts int
}

// newSortedSets returns sets that are kept in the bucket "likes", and creates the bucket if it does not exist. If salts
// is above 0, each set is spread over so many ranges of keys. A set then takes very many writes at once from the start,
// but a read of all members needs as many listings. The number salts cannot change later.
func newSortedSets(ctx context.Context, c *listing.Client, salts int) (*sortedSets, error) {
	var cuts [][]byte
	if salts > 0 {
		cuts = keys.Salts(salts)[1:]
	}
	if err := c.CreateBucket(ctx, "likes", cuts...); err != nil && !errors.Is(err, listing.ErrBucketExists) {
		return nil, err
	}
	return &sortedSets{likes: c.Bucket("likes"), salts: salts}, nil
}

func (s *sortedSets) key(set, member string) []byte {
	key := keys.Of(keys.String(set), keys.String(member))
	if s.salts > 0 {
		return keys.Salted(s.salts, key)
	}
	return key
}

// prefixes returns the prefixes of the keys of a set: one prefix, or one for each salt.
func (s *sortedSets) prefixes(set string) [][]byte {
	if s.salts == 0 {
		return [][]byte{keys.Of(keys.String(set))}
	}
	prefixes := keys.Salts(s.salts)
	for i := range prefixes {
		prefixes[i] = append(prefixes[i], keys.Of(keys.String(set))...)
	}
	return prefixes
}

func (s *sortedSets) Add(ctx context.Context, set, member string) error {
	return s.likes.Put(ctx, s.key(set, member), nil)
}

func (s *sortedSets) Remove(ctx context.Context, set, member string) error {
	return s.likes.Delete(ctx, s.key(set, member))
}

func (s *sortedSets) Has(ctx context.Context, set, member string) (bool, error) {
	_, err := s.likes.Get(ctx, s.key(set, member))
	if errors.Is(err, listing.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (s *sortedSets) All(ctx context.Context, set string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, prefix := range s.prefixes(set) {
			for item, err := range s.likes.All(ctx, listing.Query{Prefix: prefix, KeysOnly: true}) {
				if err != nil {
					yield("", err)
					return
				}
				member, err := s.member(item.Key)
				if !yield(member, err) || err != nil {
					return
				}
			}
		}
	}
}

// member returns the member that a key contains. A key of another form is an error.
func (s *sortedSets) member(key []byte) (string, error) {
	plain := key
	if s.salts > 0 {
		var err error
		if plain, err = keys.Unsalted(key); err != nil {
			return "", err
		}
	}
	r := keys.Read(plain)
	_ = r.String() // the set
	member := r.String()
	if err := r.End(); err != nil {
		return "", fmt.Errorf("the bucket has a key that is no member's: %q: %w", key, err)
	}
	return member, nil
}

func (s *sortedSets) Count(ctx context.Context, set string) (n int, err error) {
	for _, prefix := range s.prefixes(set) {
		for _, err := range s.likes.All(ctx, listing.Query{Prefix: prefix, KeysOnly: true}) {
			if err != nil {
				return 0, err
			}
			n++
		}
	}
	return n, nil
}
