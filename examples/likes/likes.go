package main

import (
	"context"
	"iter"
)

// Sets are sets of members by name: who likes which post. Adding a member that is there, and
// removing one that is not, change nothing. Members have names that are not empty. Methods
// are safe for concurrent use.
type Sets interface {
	Add(ctx context.Context, set, member string) error
	Remove(ctx context.Context, set, member string) error
	Has(ctx context.Context, set, member string) (bool, error)
	// All reads the members, in any order, each once. It ends with the first error.
	All(ctx context.Context, set string) iter.Seq2[string, error]
	// Count reads all members and counts them.
	Count(ctx context.Context, set string) (int, error)
}

// first reads at most n members.
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
