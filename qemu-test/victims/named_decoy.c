// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -static
//
// Whose debug information pretends to be that of named.c.
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) int decoy_charge(int price)
{
	return printf("%d\n", price);
}

int main(void)
{
	for (int price = 0;; price++)
		usleep(decoy_charge(price) * 10000);
}
