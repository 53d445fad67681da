// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// A function of 64 one-byte instructions at places sixteen bytes apart, called once. It is
// copied a thousand times: each copy is a file of its own.
//
//   soak_inode
__asm__(".text\n.p2align 4\n.globl places\n.type places, @function\nplaces:\n"
	".rept 64\n.p2align 4\nnop\n.endr\n"
	"ret\n.size places, . - places\n");
void places(void);

int main(void)
{
	places();
	return 0;
}
