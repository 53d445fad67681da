// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Calls main.work from many goroutines at once, each as often as a line of stdin says; each
// call is at another depth, so that stacks grow, and move, while calls are under way.
//
//	goroutines COUNT
//
// Prints "ready PID" first and "called N" when N calls are done (in all).
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

//go:noinline
func work(name string, number int) (length int) {
	return below(number%64) + len(name)
}

//go:noinline
func below(depth int) int {
	var room [200]byte
	if depth > 0 {
		room[depth] = byte(below(depth - 1))
	}
	return int(room[depth]) + 1
}

func main() {
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println("ready", os.Getpid())
	called := 0
	for calls := 0; ; called += calls * count {
		if called > 0 {
			fmt.Println("called", called)
		}
		if _, err := fmt.Scan(&calls); err != nil {
			return
		}
		var all sync.WaitGroup
		for index := range count {
			all.Add(1)
			go func() {
				defer all.Done()
				for number := range calls {
					work(fmt.Sprint("goroutine ", index), number)
				}
			}()
		}
		all.Wait()
	}
}
