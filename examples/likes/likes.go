package main

import (
	"context"
	"iter"
)

// Sets are named sets of members, e.g. the users who like a post. Adding a member that a set has, or removing a member
// that a set lacks, changes nothing. The name of a member must not be empty. The methods are safe for concurrent use.
type Sets interface {
	Add(ctx context.Context, set, member string) error
	Remove(ctx context.Context, set, member string) error
	Has(ctx context.Context, set, member string) (bool, error)
	// All returns the members of a set, each once, in any order. The sequence ends with the first error.
	All(ctx context.Context, set string) iter.Seq2[string, error]
	// Count returns the number of members of a set, which costs a read of all members.
	Count(ctx context.Context, set string) (int, error)
}

// first returns at most n members of a set.
func first(ctx context.Context, s Sets, set string, n int) (members []string, err error) {
	for member, err := range s.All(ctx, set) {
		if err != nil {
			return nil, err
		}
		if members = append(members, member); len(members) == n {
			break
		}
	}
	return members, nil
}
