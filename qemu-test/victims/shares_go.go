// SPDX-License-Identifier: MIT OR Apache-2.0
//
// As shares.c; one loop serves all, as QEMU takes longer for one that lies in two pages.
package main

import (
	"os"
	"strconv"
)

var sink uint64

//go:noinline
func mix(n uint64) {
	x := sink + n
	for i := uint64(0); i < n*1000; i++ {
		x = x*6364136223846793005 + 1
	}
	sink = x
}

//go:noinline
func share1() { mix(1) }

//go:noinline
func share2() { mix(2) }

//go:noinline
func share3() { mix(3) }

//go:noinline
func share4() { mix(4) }

//go:noinline
func share5() { mix(5) }

//go:noinline
func share6() { mix(6) }

//go:noinline
func share7() { mix(7) }

//go:noinline
func share8() { mix(8) }

//go:noinline
func share9() { mix(9) }

//go:noinline
func share10() { mix(10) }

func main() {
	rounds, _ := strconv.Atoi(os.Args[1])
	for ; rounds > 0; rounds-- {
		share1()
		share2()
		share3()
		share4()
		share5()
		share6()
		share7()
		share8()
		share9()
		share10()
	}
}
