// River, set as its own `river bench` is: prepare URL MODE, fill URL MODE COUNT DUE, work URL MODE.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	inOneCall = 5_000
	tellEvery = 50 * time.Millisecond
)

var handled, first atomic.Int64

type work struct {
	Text string `json:"text"`
}

func (work) Kind() string { return "work" }

type handler struct {
	river.WorkerDefaults[work]
	recurring bool
}

func (h *handler) Work(ctx context.Context, job *river.Job[work]) error {
	if handled.Add(1) == 1 {
		first.Store(time.Now().UnixMicro())
	}
	if !h.recurring {
		return nil
	}
	next := &river.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)}
	_, err := river.ClientFromContext[pgx.Tx](ctx).Insert(ctx, job.Args, next)
	return err
}

func main() {
	ctx := context.Background()
	step, url, mode := os.Args[1], os.Args[2], os.Args[3]
	config, err := pgxpool.ParseConfig(url)
	must(err)
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	switch step {
	case "prepare":
		prepare(ctx, pool)
	case "fill":
		fill(ctx, pool, mode)
	case "work":
		run(ctx, pool, mode)
	}
}

func prepare(ctx context.Context, pool *pgxpool.Pool) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	must(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(err)
}

func fill(ctx context.Context, pool *pgxpool.Pool, mode string) {
	count, err := strconv.Atoi(os.Args[4])
	must(err)
	var options river.InsertOpts
	if mode != "raw" {
		due, err := strconv.ParseFloat(os.Args[5], 64)
		must(err)
		options.ScheduledAt = time.UnixMicro(int64(due * 1e6))
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet()})
	must(err)
	job := river.InsertManyParams{Args: work{Text: strings.Repeat("x", 189)}, InsertOpts: &options}
	for left := count; left > 0; left -= inOneCall {
		jobs := make([]river.InsertManyParams, min(left, inOneCall))
		for at := range jobs {
			jobs[at] = job
		}
		_, err := client.InsertManyFast(ctx, jobs)
		must(err)
	}
}

func run(ctx context.Context, pool *pgxpool.Pool, mode string) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &handler{recurring: mode == "recurring"})
	client, err := river.NewClient[pgx.Tx](riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            quiet(),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2_000}},
		Workers:           workers,
	})
	must(err)
	must(client.Start(ctx))
	for told := int64(0); ; time.Sleep(tellEvery) {
		if now := handled.Load(); now != told {
			told = now
			tell(now)
		}
	}
}

func tell(count int64) {
	line, err := json.Marshal(map[string]any{
		"at":      float64(time.Now().UnixMicro()) / 1e6,
		"first":   float64(first.Load()) / 1e6,
		"handled": count,
	})
	must(err)
	fmt.Println(string(line))
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
