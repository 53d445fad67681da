// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Spends its time in its own functions and in all of Go's runtime that runs on other stacks than
// a goroutine's: allocation, garbage collection, new goroutines, stacks that grow, the scheduler.
//
//	mixed_go SECONDS
package main

import (
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"time"
)

type node struct {
	left, right *node
	room        [6]uint64
}

var (
	sink  uint64
	trees [4]*node
)

//go:noinline
func mix(n uint64) uint64 {
	x := sink + n
	for i := uint64(0); i < n; i++ {
		x = x*6364136223846793005 + 1
	}
	return x
}

//go:noinline
func own() {
	sink = mix(40000)
}

//go:noinline
func grown(depth int) uint64 {
	var room [40]uint64
	for i := range room {
		room[i] = uint64(depth + i)
	}
	if depth > 0 {
		room[depth%40] += grown(depth - 1)
	}
	return room[(depth+7)%40]
}

//go:noinline
func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: tree(depth - 1), right: tree(depth - 1)}
}

//go:noinline
func maps() {
	words := map[string]int{}
	for i := 0; i < 800; i++ {
		words[strconv.Itoa(i*7919)] += i
	}
	for word := range words {
		delete(words, word)
	}
}

//go:noinline
func sorted() {
	all := make([]int, 600)
	for i := range all {
		all[i] = (i * 7919) % 601
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
}

//go:noinline
func spawned() {
	var all sync.WaitGroup
	for i := 0; i < 60; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			grown(20)
		}()
	}
	all.Wait()
}

//go:noinline
func channels() {
	there, back := make(chan int), make(chan int, 4)
	go func() {
		for value := range there {
			back <- value + 1
		}
		close(back)
	}()
	for i := 0; i < 150; i++ {
		there <- i
		if i%8 == 0 {
			runtime.Gosched()
		}
		<-back
	}
	close(there)
}

//go:noinline
func deferred() (failed bool) {
	defer func() { failed = recover() != nil }()
	var none []int
	return none[len(os.Args)] == 0
}

func worker(number int, end time.Time, done *sync.WaitGroup) {
	defer done.Done()
	for time.Now().Before(end) {
		own()
		trees[number%len(trees)] = tree(9)
		maps()
		sorted()
		spawned()
		channels()
		deferred()
	}
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var done sync.WaitGroup
	for number := 0; number < 4; number++ {
		done.Add(1)
		go worker(number, end, &done)
	}
	done.Wait()
}
