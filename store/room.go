package store

import "context"

type makingRoom struct{}

// MakingRoom returns a context that tells a store that puts prepare a deletion, such as the put of a delete marker.
// When the disk is nearly full, a store refuses other puts, but accepts these puts as long as it accepts deletions. So
// a client can delete objects to free space.
func MakingRoom(ctx context.Context) context.Context {
	return context.WithValue(ctx, makingRoom{}, true)
}

// MakesRoom reports whether puts with the context ctx prepare a deletion: ctx was made by MakingRoom, or is derived
// from such a context. A store asks before it refuses a put because the disk is nearly full.
func MakesRoom(ctx context.Context) bool { return ctx.Value(makingRoom{}) != nil }
