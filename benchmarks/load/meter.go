package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const tick = 100 // USER_HZ of /proc, on every Linux

// meter counts what came, and how long each took while the measured time lasts.
type meter struct {
	count, failed atomic.Int64
	limit         int64
	full          chan struct{} // closed at the limit
	once          sync.Once
	measuring     atomic.Bool
	lock          sync.Mutex
	delays        []time.Duration
}

// Result is what was measured: how many within how long, failures in the whole run, and delays in ms.
type Result struct {
	Count        int64   `json:"count"`
	Seconds      float64 `json:"seconds"`
	Failed       int64   `json:"failed"`
	ServerCPU    float64 `json:"server_cpu_s"`
	GeneratorCPU float64 `json:"generator_cpu_s"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	Max          float64 `json:"max_ms"`
}

func newMeter(limit int64) *meter {
	return &meter{limit: limit, full: make(chan struct{})}
}

// add counts answers of a measured peer.
func (m *meter) add(count int) {
	if m.count.Add(int64(count)) >= m.limit && m.limit > 0 {
		m.once.Do(func() { close(m.full) })
	}
}

// took notes how long answers were under way.
func (m *meter) took(delays ...time.Duration) {
	if m.measuring.Load() {
		m.lock.Lock()
		m.delays = append(m.delays, delays...)
		m.lock.Unlock()
	}
}

func (m *meter) measure(run *Run) *Result {
	counted := int64(0)
	if run.Warm > 0 {
		m.wait(run.Warm)
		counted = m.count.Load()
	}
	m.measuring.Store(true)
	at, server, own := time.Now(), processCPU(run.Pid), ownCPU()
	m.wait(run.Seconds)
	m.measuring.Store(false)
	result := &Result{
		Count:        m.count.Load() - counted,
		Seconds:      time.Since(at).Seconds(),
		ServerCPU:    processCPU(run.Pid) - server,
		GeneratorCPU: ownCPU() - own,
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(m.delays) > 0 {
		slices.Sort(m.delays)
		result.P50, result.P99, result.Max = m.share(0.5), m.share(0.99), m.share(1)
	}
	return result
}

// wait lasts so many seconds, or until the limit is reached.
func (m *meter) wait(seconds float64) {
	select {
	case <-m.full:
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	}
}

func (m *meter) share(share float64) float64 {
	at := min(len(m.delays)-1, int(share*float64(len(m.delays))))
	return m.delays[at].Seconds() * 1000
}

// processCPU is what a process has used of its processors, in seconds; 0 where there is no /proc.
func processCPU(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	user, _ := strconv.ParseFloat(string(fields[11]), 64)
	system, _ := strconv.ParseFloat(string(fields[12]), 64)
	return (user + system) / tick
}

func ownCPU() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
