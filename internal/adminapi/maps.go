package adminapi

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// rootAt returns the root of the partition map of the bucket id, which is the record that names all ranges. epoch is
// the version of the map; 0 stands for the newest. The error is NotFound if this version is no longer kept, or does not
// exist yet.
func (h *handler) rootAt(ctx context.Context, id store.BucketID, epoch uint64) (*partmap.Root, error) {
	root, err := h.maps.Load(ctx, id)
	if err != nil || epoch == 0 || root.Epoch == epoch {
		return root, err
	}
	if epoch > root.Epoch {
		return nil, store.Errorf(store.NotFound, "the newest epoch is %d", root.Epoch)
	}
	old, err := h.o.Store.History(ctx, id, epoch+1, 1)
	if err != nil {
		return nil, err
	}
	if len(old) == 0 || old[0].Epoch != epoch {
		return nil, store.Errorf(store.NotFound, "epoch %d is not kept any more", epoch)
	}
	return partmap.DecodeRoot(id, old[0])
}

// showMap answers a request with the partition map of a bucket (its ranges and partitions) as JSON. It writes each
// range as soon as the range is read, so that a map of any size takes little memory.
func (h *handler) showMap(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	epoch := q.number("epoch")
	name, id, err := h.asked(r, q)
	var root *partmap.Root
	if err == nil {
		root, err = h.rootAt(r.Context(), id, epoch)
	}
	if err == nil && root.State == partmap.Deleted {
		err = store.Errorf(store.NotFound, "bucket %q is deleted", name)
	}
	if err != nil {
		fail(w, err)
		return
	}
	read := func(n store.NodeID) ([]byte, error) { return h.o.Store.Node(r.Context(), id, n) }
	out := bufio.NewWriter(w)
	begun := false
	for rg, err := range partmap.Ranges(root, read, nil, nil) {
		if err != nil {
			if store.KindOf(err) == store.NotFound && epoch > 0 {
				err = store.Errorf(store.NotFound, "parts of epoch %d are not kept any more", epoch)
			}
			if !begun {
				fail(w, err)
				return
			}
			// It is too late for a status; an answer that breaks off is not JSON.
			panic(http.ErrAbortHandler)
		}
		p := Partition{
			ID: rg.Partition.String(), Span: Span{Start: rg.Start, End: rg.End},
			Phase: rg.Phase.String(), SweepPending: rg.SweepPending,
		}
		if !rg.To.IsZero() {
			p.To = rg.To.String()
		}
		if rg.PinUntil > 0 {
			p.PinnedUntil = time.Unix(rg.PinUntil, 0).UTC()
		}
		line, err := marshal(p)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if begun {
			_, _ = out.WriteString(",\n")
		} else {
			w.Header().Set("Content-Type", "application/json")
			bucket, _ := marshal(name)
			fmt.Fprintf(out, `{"bucket":%s,"epoch":%d,"partitions":[`+"\n", bucket, root.Epoch)
			begun = true
		}
		_, _ = out.Write(line)
	}
	_, _ = out.WriteString("\n]}\n")
	_ = out.Flush() // an error means that the client has gone
}

func (h *handler) history(r *http.Request) (any, error) {
	const most = 1000
	q := paramsOf(r)
	limit := q.limit("limit", most, most)
	name, id, err := h.asked(r, q)
	if err != nil {
		return nil, err
	}
	root, err := h.maps.Load(r.Context(), id)
	if err != nil {
		return nil, err
	}
	out := History{Bucket: name, Epochs: []Epoch{epochOf(root)}}
	if limit == 1 {
		return out, nil
	}
	old, err := h.o.Store.History(r.Context(), id, root.Epoch, limit-1)
	if err != nil {
		return nil, err
	}
	for _, rec := range old {
		root, err := partmap.DecodeRoot(id, rec)
		if err != nil {
			return nil, err
		}
		out.Epochs = append(out.Epochs, epochOf(root))
	}
	return out, nil
}

func epochOf(r *partmap.Root) Epoch {
	e := Epoch{
		Epoch: r.Epoch, Changed: time.UnixMicro(r.ChangedAt).UTC(), State: r.State.String(),
		Ranges: r.Ranges, Batches: []Batch{},
	}
	for _, b := range r.Batches {
		e.Batches = append(e.Batches, Batch{ID: b.ID, Phase: b.Phase.String(), Ranges: b.Ranges})
	}
	return e
}
