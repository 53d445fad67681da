// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A service of eight goroutines whose stacks grow, shrink and move while calls are under way. Says
// what each call got and returned, worker by worker: the same each time, but for the numbers of the
// goroutines.
//
//	service CALLS
//
// Prints at the end "worker INDEX goroutine NUMBER" and "call FUNCTION ARGUMENTS = RESULTS" for
// each, and "done".
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

const workers = 8

type Request struct {
	name  string
	size  int32
	retry bool
}

type Server struct {
	prefix string
}

// Base is a variable of the package.
var Base = 1000

//go:noinline
func below(depth int) int {
	var room [300]byte
	if depth > 0 {
		room[depth%300] = byte(below(depth - 1))
	}
	return int(room[depth%300]) + 1
}

// grow makes the stack grow by so many frames, and sometimes shrink before.
func grow(number int) {
	if number%25 == 0 {
		runtime.GC()
	}
	below(number * 7 % 150)
}

//go:noinline
func split(text string, number int) (head string, count int, err error) {
	grow(number)
	if number%5 == 0 {
		return "", number, errors.New("no head in " + text)
	}
	head, _, _ = strings.Cut(text, "-")
	return head, len(head) + number, nil
}

//go:noinline
func (s *Server) handle(request Request, values []int) (length int, ok bool) {
	grow(int(request.size))
	return len(s.prefix+request.name) + int(request.size) + len(values), request.retry
}

//go:noinline
func largest[T cmp.Ordered](values []T, number int) (T, int) {
	grow(number)
	at := 0
	for index := range values {
		if values[index] > values[at] {
			at = index
		}
	}
	return values[at], at
}

//go:noinline
func makeAdder(base int) func(int) int {
	return func(more int) int {
		grow(more)
		return base + more
	}
}

// More words than there are registers, and what is never in one.
//
//go:noinline
func spread(a, b, c, d, e, f, g, h int, pair [2]int32, fraction float64, i, j int8) (int, [2]int32, float64, [1]uint16, int, int, int, int, int, int, int, int8) {
	grow(a)
	return a + int(j), [2]int32{pair[1], pair[0]}, fraction, [1]uint16{uint16(h)}, g, f, e, d, c, b, a, i
}

//go:noinline
func recovers(number int) (result string) {
	defer func() {
		if reason := recover(); reason != nil {
			result = fmt.Sprint("recovered ", reason)
		}
	}()
	grow(number)
	if number%2 == 0 {
		panic(number)
	}
	return "calm"
}

//go:noinline
func describe(what any, tags map[string]int, counts []int32, most int) int {
	grow(most)
	return len(fmt.Sprint(what)) + len(tags) + len(counts)
}

// at is in the caller's stack.
//
//go:noinline
func stays(at *[4]int, number int) int {
	// More than a new goroutine's stack has.
	below(1000)
	return at[1]
}

func stay(number int) int {
	done := make(chan int)
	go func() {
		at := [4]int{0, number * 3, 0, 0}
		done <- stays(&at, number) + at[1]
	}()
	return <-done
}

// What describe is called with, and how nsprobe shows it.
func things(number int) (any, string) {
	switch number % 4 {
	case 0:
		return number, fmt.Sprintf("int(%d)", number)
	case 1:
		text := fmt.Sprint("thing", number)
		return text, fmt.Sprintf("string(%q)", text)
	case 2:
		err := fmt.Errorf("no thing %d: %w", number, errors.New("none"))
		return err, fmt.Sprintf("*fmt.wrapError(%q)", err.Error())
	}
	return nil, "nil"
}

//go:noinline
func leaves(number int) int {
	grow(number)
	if number >= 0 {
		runtime.Goexit()
	}
	return number
}

func goroutine() string {
	text := make([]byte, 64)
	text = text[:runtime.Stack(text, false)]
	return string(bytes.Fields(text)[1])
}

func work(index, calls int, out *strings.Builder) {
	fmt.Fprintf(out, "worker %d goroutine %s\n", index, goroutine())
	server := &Server{prefix: "worker" + strconv.Itoa(index)}
	add := makeAdder(index * Base)
	for number := range calls {
		number := index*calls + number
		text := fmt.Sprintf("request%d-of-%d", number, index)
		switch number % 5 {
		case 0, 1:
			head, count, err := split(text, number)
			fmt.Fprintf(out, "call split %q %d = %q %d %q\n", text, number, head, count, fmt.Sprint(err))
		case 2:
			request := Request{name: text, size: int32(number), retry: number%4 == 0}
			values := make([]int, number%7)
			for index := range values {
				values[index] = number + index
			}
			length, ok := server.handle(request, values)
			fmt.Fprintf(out, "call handle %q %d %d = %d %t\n", text, number, number%7, length, ok)
		case 3:
			value, at := largest([]int{number, 2 * number, number + 1}, number)
			name, which := largest([]string{text, "z" + text}, number)
			fmt.Fprintf(out, "call largest %d = %d %d\n", number, value, at)
			fmt.Fprintf(out, "call largest %d = %q %d\n", number, name, which)
		default:
			fmt.Fprintf(out, "call add %d = %d\n", number, add(number))
			n := number
			spread(n, n+1, n+2, n+3, n+4, n+5, n+6, n+7, [2]int32{int32(n), -7}, 0.5, 3, -4)
			fmt.Fprintf(out, "call spread %d\n", n)
			fmt.Fprintf(out, "call stays %d %d\n", number, stay(number)/2)
			fmt.Fprintf(out, "call recovers %d = %q\n", number, recovers(number))
			what, shown := things(number / 5)
			tags, counts := map[string]int{}, []int32{}
			for index := range number % 40 {
				tags[strconv.Itoa(index)] = index
				counts = append(counts, int32(-index))
			}
			describe(what, tags, counts, number)
			fmt.Fprintf(out, "call describe %s %d %v\n", shown, len(tags), counts)
		}
	}
}

func main() {
	calls, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	outs := make([]strings.Builder, workers)
	for index := range workers {
		all.Add(2)
		go func() {
			defer all.Done()
			work(index, calls, &outs[index])
		}()
		go func() {
			defer all.Done()
			leaves(index)
		}()
	}
	all.Wait()
	for index := range outs {
		fmt.Print(outs[index].String())
	}
	fmt.Println("done")
}
