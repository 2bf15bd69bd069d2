package store

import "context"

type makingRoom struct{}

// MakingRoom returns a context that marks puts as the preparation of a deletion, such as the put of a delete marker.
// When the disk is nearly full, a store goes on accepting these puts as long as it accepts deletions.
func MakingRoom(ctx context.Context) context.Context {
	return context.WithValue(ctx, makingRoom{}, true)
}

// MakesRoom reports whether a put with the context ctx prepares a deletion: ctx was made by MakingRoom, or is derived
// from such a context.
func MakesRoom(ctx context.Context) bool { return ctx.Value(makingRoom{}) != nil }
