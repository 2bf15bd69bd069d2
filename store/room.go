package store

import "context"

type makingRoom struct{}

// MakingRoom returns a context for puts that lead to a deletion, such as that of a delete marker. A store whose disk is
// nearly full accepts them for as long as deletions.
func MakingRoom(ctx context.Context) context.Context {
	return context.WithValue(ctx, makingRoom{}, true)
}

// MakesRoom reports whether the context is one of MakingRoom.
func MakesRoom(ctx context.Context) bool { return ctx.Value(makingRoom{}) != nil }
