package store

import "context"

type makingRoom struct{}

// MakingRoom returns a context for puts that prepare a deletion, such as the put of a delete marker. A store whose disk
// is nearly full refuses other puts, but accepts puts with this context as long as it accepts deletions. So a client
// can delete objects to free space.
func MakingRoom(ctx context.Context) context.Context {
	return context.WithValue(ctx, makingRoom{}, true)
}

// MakesRoom reports whether the context ctx comes from MakingRoom: puts with it prepare a deletion. A store asks before
// it refuses a put because the disk is nearly full.
func MakesRoom(ctx context.Context) bool { return ctx.Value(makingRoom{}) != nil }
