// grpc-go and net/http as clients of the server of tests/world:
//
//	world grpc HOST:PORT
//	world http http://HOST:PORT
//	world https https://HOST:PORT CERTIFICATE_FILE
//	world grpc_restart HOST:PORT, world http_restart http://HOST:PORT
//
// The last two make calls until their standard input ends, while the server is stopped and started again.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Detects hangs only.
const limit = 120 * time.Second

func check(condition bool, what ...any) {
	if !condition {
		fmt.Println(append([]any{"not true:"}, what...)...)
		os.Exit(1)
	}
}

// Runs count calls at once, and fails if one fails.
func together(what string, count int, call func(i int) error) {
	var failures sync.Map
	var group sync.WaitGroup
	for i := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			if err := call(i); err != nil {
				number, _ := failures.LoadOrStore(err.Error(), new(atomic.Int64))
				number.(*atomic.Int64).Add(1)
			}
		}()
	}
	group.Wait()
	failures.Range(func(text, number any) bool {
		check(false, what, number.(*atomic.Int64).Load(), "of", count, "failed:", text)
		return true
	})
}

// Prints the median and the 99th percentile of calls one after another.
func latency(what string, count int, call func() error) {
	var times []time.Duration
	for range count {
		begin := time.Now()
		err := call()
		check(err == nil, what, err)
		times = append(times, time.Since(begin))
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	fmt.Printf("%s: median %v, p99 %v\n", what, times[count/2], times[count*99/100])
}

// Calls from several goroutines until the standard input ends. Prints how many succeeded; none may fail.
func until_input_ends(call func(context.Context) error) {
	var over atomic.Bool
	go func() {
		io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		over.Store(true)
	}()
	fmt.Println("begun")
	var calls atomic.Int64
	together("while the server is started again:", 8, func(int) error {
		for !over.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			err := call(ctx)
			cancel()
			if err != nil {
				return err
			}
			calls.Add(1)
		}
		return nil
	})
	check(calls.Load() > 0, "no call was made")
	fmt.Println(calls.Load(), "calls")
}

func main() {
	check(len(os.Args) >= 3, "two arguments are needed")
	switch os.Args[1] {
	case "grpc":
		grpc_cases(os.Args[2])
	case "grpc_restart":
		grpc_restart(os.Args[2])
	case "http":
		http_cases(os.Args[2], "")
	case "https":
		http_cases(os.Args[2], os.Args[3])
	case "http_restart":
		http_restart(os.Args[2])
	default:
		check(false, "there is no case", os.Args[1])
	}
}
