// Members that are consumers of franz-go, behind the line protocol of tests/compat/members/common.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type request struct {
	Do        string
	Member    string
	Group     string
	Topic     string
	Assignor  string
	SessionMs int `json:"session_ms"`
	Instance  *string
}

type event map[string]any

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

var speaking sync.Mutex

type member struct {
	request
	lock       sync.Mutex
	partitions map[int32]bool
	leaving    chan struct{}
}

func main() {
	members := map[string]*member{}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var asked request
		if err := json.Unmarshal(input.Bytes(), &asked); err != nil {
			panic(err)
		}
		if asked.Do == "leave" {
			close(members[asked.Member].leaving)
			continue
		}
		started := &member{request: asked, partitions: map[int32]bool{}, leaving: make(chan struct{})}
		members[asked.Member] = started
		go started.live(os.Args[len(os.Args)-1])
	}
}

func (m *member) say(what event) {
	what["member"] = m.Member
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	speaking.Lock()
	defer speaking.Unlock()
	fmt.Println(string(line))
}

func (m *member) change(topics map[string][]int32, there bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partition := range topics[m.Topic] {
		if there {
			m.partitions[partition] = true
		} else {
			delete(m.partitions, partition)
		}
	}
	all := []int{}
	for partition := range m.partitions {
		all = append(all, int(partition))
	}
	sort.Ints(all)
	m.say(event{"event": "assignment", "partitions": all})
}

func (m *member) live(bootstrap string) {
	taken := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) { m.change(topics, false) }
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(m.Group),
		kgo.ConsumeTopics(m.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancers[m.Assignor]),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(time.Duration(m.SessionMs) * time.Millisecond),
		kgo.RebalanceTimeout(time.Duration(m.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Second),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, topics map[string][]int32) { m.change(topics, true) }),
		kgo.OnPartitionsRevoked(taken),
		kgo.OnPartitionsLost(taken),
	}
	if m.Instance != nil {
		options = append(options, kgo.InstanceID(*m.Instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		m.say(event{"event": "failed", "why": err.Error()})
		return
	}
	for {
		select {
		case <-m.leaving:
			client.CloseAllowingRebalance()
			m.say(event{"event": "left"})
			return
		default:
			m.poll(client)
		}
	}
}

func (m *member) poll(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	fetches := client.PollFetches(ctx)
	cancel()
	defer client.AllowRebalance()
	ends := map[int32]int64{}
	fetches.EachRecord(func(r *kgo.Record) {
		m.say(event{"event": "record", "partition": r.Partition, "offset": r.Offset})
		ends[r.Partition] = r.Offset + 1
	})
	if len(ends) == 0 {
		return
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		m.say(event{"event": "uncommitted", "why": err.Error()})
		return
	}
	m.say(event{"event": "committed", "offsets": ends})
}
