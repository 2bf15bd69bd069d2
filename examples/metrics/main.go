// Command metrics keeps samples of many sensors in one evenkeel bucket. It exports old days to Parquet files, and then
// drops these days from the bucket. See README.md.
package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 3 || os.Args[1] != "demo" {
		fmt.Fprintln(os.Stderr, "metrics simulates sensors.\n\n"+
			"  metrics demo DIRECTORY    30 days of 20 sensors: 7 stay, older ones go to Parquet files in the directory")
		os.Exit(2)
	}
	if err := demo(ctx, os.Stdout, os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

// demo simulates 30 days of sensors that measure every hour. Every night it moves days that are older than a week into
// the directory archive. It prints the results to out.
func demo(ctx context.Context, out io.Writer, archive string) error {
	dir, err := os.MkdirTemp("", "metrics")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := evenkeel.Open(dir, evenkeel.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	m, err := NewMetrics(ctx, db.Client())
	if err != nil {
		return err
	}
	a, err := OpenArchive(archive)
	if err != nil {
		return err
	}

	const days, sensors, keep = 30, 20, 7 * 24 * time.Hour
	first := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	dropped, now := 0, first
	for range days {
		var samples []Sample
		for end := now.Add(24 * time.Hour); now.Before(end); now = now.Add(time.Hour) {
			for sensor := range sensors {
				samples = append(samples, Sample{name(sensor), now, 20 + 5*math.Sin(float64(now.Unix())/(24*3600)*2*math.Pi)})
			}
		}
		if err := m.Add(ctx, now, samples...); err != nil {
			return err
		}
		n, err := m.Retain(ctx, now, keep, a)
		if err != nil {
			return err
		}
		dropped += n
	}
	fmt.Fprintf(out, "%d days of %d sensors; %d days exported and dropped\n", days, sensors, dropped)

	begun, n := time.Now(), 0
	for _, err := range m.Scan(ctx, name(3), first, now) {
		if err != nil {
			return err
		}
		n++
	}
	fmt.Fprintf(out, "%s has %d samples left, read in %v\n", name(3), n, time.Since(begun).Round(10*time.Microsecond))
	n = 0
	for _, err := range a.Read(sliceOf(first)) {
		if err != nil {
			return err
		}
		n++
	}
	info, err := os.Stat(a.file(sliceOf(first)))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s has the %d samples of all sensors, in %d bytes\n",
		filepath.Base(a.file(sliceOf(first))), n, info.Size())
	return nil
}

func name(sensor int) string { return fmt.Sprintf("sensor-%02d", sensor) }
