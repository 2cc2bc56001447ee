// franz-go behind the line protocol of tests/compat/program.py. Every call makes a client of its own.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type request struct {
	Do         string
	Topic      string
	Partition  int32
	Partitions int32
	Codec      string
	Records    []record
	Starts     map[string]int64
	Count      int
	TimeoutMs  int64 `json:"timeout_ms"`
	Timestamp  int64
}

type record struct {
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp int64        `json:"timestamp"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		answer := map[string]any{}
		if result, err := call(os.Args[1], line); err == nil {
			answer["ok"] = result
		} else {
			answer["error"] = err.Error()
		}
		out.Encode(answer)
	}
}

func call(bootstrap string, line []byte) (any, error) {
	var req request
	if err := json.Unmarshal(line, &req); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	servers := kgo.SeedBrokers(bootstrap)
	switch req.Do {
	case "create":
		return create(ctx, servers, req)
	case "write":
		return write(ctx, servers, req)
	case "read":
		return read(ctx, servers, req)
	case "offset_for_time":
		return offsetForTime(ctx, servers, req)
	}
	return nil, fmt.Errorf("unknown request %q", req.Do)
}

func create(ctx context.Context, servers kgo.Opt, req request) (any, error) {
	admin, err := kadm.NewOptClient(servers)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	_, err = admin.CreateTopic(ctx, req.Partitions, -1, nil, req.Topic)
	return nil, err
}

func write(ctx context.Context, servers kgo.Opt, req request) (any, error) {
	client, err := kgo.NewClient(servers, kgo.ProducerBatchCompression(codecs[req.Codec]),
		kgo.ProducerLinger(100*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, each := range req.Records {
		r := &kgo.Record{Topic: req.Topic, Partition: req.Partition, Timestamp: time.UnixMilli(each.Timestamp),
			Key: fromHex(each.Key), Value: fromHex(each.Value)}
		for _, header := range each.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: *header[0], Value: fromHex(header[1])})
		}
		records = append(records, r)
	}
	results := client.ProduceSync(ctx, records...)
	offsets := []int64{}
	for _, result := range results {
		offsets = append(offsets, result.Record.Offset)
	}
	return offsets, results.FirstErr()
}

func read(ctx context.Context, servers kgo.Opt, req request) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMs)*time.Millisecond)
	defer cancel()
	starts := map[int32]kgo.Offset{}
	for partition, offset := range req.Starts {
		p, err := strconv.ParseInt(partition, 10, 32)
		if err != nil {
			return nil, err
		}
		starts[int32(p)] = kgo.NewOffset().At(offset)
	}
	client, err := kgo.NewClient(servers, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{req.Topic: starts}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	received := []record{}
	for len(received) < req.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", len(received), req.Count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			each := record{r.Partition, r.Offset, r.Timestamp.UnixMilli(), toHex(r.Key), toHex(r.Value), [][2]*string{}}
			for _, header := range r.Headers {
				each.Headers = append(each.Headers, [2]*string{&header.Key, toHex(header.Value)})
			}
			received = append(received, each)
		})
	}
	return received, nil
}

// franz-go gives the end offset where no record is as young as the timestamp.
func offsetForTime(ctx context.Context, servers kgo.Opt, req request) (any, error) {
	admin, err := kadm.NewOptClient(servers)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	listed, err := admin.ListOffsetsAfterMilli(ctx, req.Timestamp, req.Topic)
	if err != nil {
		return nil, err
	}
	found, ok := listed.Lookup(req.Topic, req.Partition)
	if !ok {
		return nil, fmt.Errorf("no answer for partition %d", req.Partition)
	}
	return found.Offset, found.Err
}

func fromHex(text *string) []byte {
	if text == nil {
		return nil
	}
	bytes, err := hex.DecodeString(*text)
	if err != nil {
		panic(err)
	}
	return bytes
}

func toHex(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := hex.EncodeToString(bytes)
	return &text
}
