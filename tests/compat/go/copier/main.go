// The copier of tests/faults/copying.py with the transactional session of franz-go.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var stopping atomic.Bool

func say(event string, more any) {
	fmt.Println(event, strings.ReplaceAll(fmt.Sprint(more), "\n", " "))
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return found
}

type copier struct {
	out        string
	partitions int
	spoilEvery int
	count      int
	session    *kgo.GroupTransactSession
}

func main() {
	args := os.Args[1:]
	go func() {
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
		}
		stopping.Store(true)
	}()
	c := &copier{out: args[3], partitions: number(args[4]), spoilEvery: number(args[5])}
	for first := true; !stopping.Load(); first = false {
		if !first {
			say("renewed", "its session could not go on")
		}
		c.live(args)
	}
}

// live copies until the input ends or the session cannot go on.
func (c *copier) live(args []string) {
	ready := false
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(args[7], ",")...),
		kgo.TransactionalID(args[0]),
		kgo.TransactionTimeout(time.Duration(number(args[6]))*time.Millisecond),
		kgo.ConsumerGroup(args[1]),
		kgo.ConsumeTopics(args[2]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			if !ready {
				ready = true
				say("ready", "")
			}
		}),
	)
	if err != nil {
		say("undone", err)
		return
	}
	c.session = session
	defer session.Close()
	for !stopping.Load() {
		if !c.step() {
			return
		}
	}
}

// step copies what was read in one transaction. It answers whether the session can go on.
func (c *copier) step() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	fetches := c.session.PollRecords(ctx, 100)
	cancel()
	records := fetches.Records()
	if len(records) == 0 {
		return true
	}
	if err := c.session.Begin(); err != nil {
		say("undone", err)
		return false
	}
	c.count++
	spoiled := c.count%c.spoilEvery == 0
	promise := kgo.AbortingFirstErrPromise(c.session.Client())
	for _, record := range records {
		value := string(record.Value)
		if spoiled {
			value = "!" + value
		}
		partition := int32(number(string(record.Key)) % c.partitions)
		c.session.Produce(context.Background(),
			&kgo.Record{Topic: c.out, Partition: partition, Key: record.Key, Value: []byte(value)}, promise.Promise())
	}
	failed := promise.Err()
	end := kgo.TransactionEndTry(failed == nil && !spoiled)
	committed, err := c.session.End(context.Background(), end)
	switch {
	case err != nil:
		say("undone", err)
		return false
	case committed:
		say("committed", len(records))
	case spoiled && failed == nil:
		say("spoiled", len(records))
	default:
		say("undone", failed)
	}
	return true
}
