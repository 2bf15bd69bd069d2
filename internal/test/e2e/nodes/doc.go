// Package nodes follows docs/nodes.md on real nodes: nodes and data centres are added, replaced, removed and lost while
// clients write.
package nodes
