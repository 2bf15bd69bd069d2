package mapclient

import "github.com/evenkeel/evenkeel/store"

// Data is the part of a store that a client of buckets (listing.Client) uses besides the maps: rows, which hold the
// entries of buckets, and registers.
type Data interface {
	store.Rows
	store.Registers
}

// Mapped is a store together with the client of its maps. listing.New over a Mapped uses these maps, and calls the
// store itself, not the Mapped: optional interfaces of the store stay visible.
type Mapped struct {
	Data
	store.Nodes
	maps *Client
}

// With returns the store s together with maps, the client of the maps in that store. A process of a store that other
// processes use, too, passes the result to listing.New in place of the store.
func With(s Data, maps *Client) Mapped { return Mapped{Data: s, Nodes: maps.store, maps: maps} }

// Maps returns the client of the maps in the store.
func (m Mapped) Maps() *Client { return m.maps }

// Of returns the client of maps that a client of buckets uses. The parameter client is a *listing.Client; anything else
// panics. If only this process uses the store, a program that moves ranges must use this client of maps: another one
// would not know of the leases.
//
// Package listing sets Of and NamesOf at its start, for other packages of this module. The public methods of listing
// can't return types of internal packages.
var Of func(client any) *Client

// NamesOf returns the numbers of hits, misses and evictions of the cache of bucket names that a client of buckets has.
// They show whether the cache is large enough. The parameter client is a *listing.Client; anything else panics.
var NamesOf func(client any) CacheCounts
