// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exits of functions of a few bytes.

use super::*;
use proptest::prelude::*;

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
const RET: &[u8] = &[0xc3];
const UD2: &[u8] = &[0x0f, 0x0b];
/// `jmp *%rax`, and with notrack.
const JUMP: &[u8] = &[0xff, 0xe0];
const NOTRACK: &[u8] = &[0x3e, 0xff, 0xe0];

mod disguised;

/// A file that is made up.
#[derive(Default)]
struct Made {
    pieces: Vec<(u64, Vec<u8>)>,
    /// Code that no piece holds.
    others: Vec<(u64, Vec<u8>)>,
    /// Where it is known whether the return address is on top; from there on.
    at_top: Vec<(Range<u64>, bool)>,
    data: Vec<(u64, Vec<u8>)>,
    linked: Vec<(u64, u64)>,
    /// Functions, or variables with their addresses, that return their first argument.
    fills: Vec<u64>,
}

impl FileCode for Made {
    fn piece(&self, address: u64) -> Option<(u64, Cow<'_, [u8]>)> {
        let mut pieces = self.pieces.iter();
        let holds = |start: u64, bytes: &[u8]| address.wrapping_sub(start) < bytes.len() as u64;
        let (start, bytes) = pieces.find(|(start, bytes)| holds(*start, bytes))?;
        Some((*start, Cow::Borrowed(bytes)))
    }

    fn undescribed(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut others = self.others.iter();
        let code = others.find_map(|(start, code)| {
            let into = usize::try_from(address.checked_sub(*start)?).ok()?;
            code.get(into..)
        });
        code.unwrap_or(&[]).iter().take(bytes).copied().collect()
    }

    fn is_at_top(&self, address: u64) -> Option<bool> {
        let mut known = self.at_top.iter();
        Some(known.find(|(range, _)| range.contains(&address))?.1)
    }

    fn linked(&self, variable: u64) -> Option<u64> {
        let mut linked = self.linked.iter();
        Some(linked.find(|(slot, _)| *slot == variable)?.1)
    }

    fn behind(&self, address: u64, slot: Option<u64>) -> Behind {
        match self.fills.contains(&slot.unwrap_or(address)) {
            true => Behind::ReturnsArgument,
            false => Behind::Unknown,
        }
    }

    fn data(&self, address: u64, bytes: usize) -> Option<Cow<'_, [u8]>> {
        let mut data = self.data.iter();
        let (_, data) = data.find(|(start, _)| *start == address)?;
        Some(Cow::Borrowed(data.get(..bytes)?))
    }
}

impl Made {
    fn with(mut self, start: u64, parts: &[&[u8]]) -> Made {
        self.pieces.push((start, parts.concat()));
        self
    }

    fn at_top(mut self, range: Range<u64>, is_at_top: bool) -> Made {
        self.at_top.push((range, is_at_top));
        self
    }

    fn words(mut self, start: u64, words: &[u32]) -> Made {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        self.data.push((start, words.collect()));
        self
    }

    fn addresses(mut self, start: u64, words: &[u64]) -> Made {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        self.data.push((start, words.collect()));
        self
    }

    /// The exits of a function at 0x1000.
    fn of(&self, parts: &[&[u8]]) -> Result<Exits, Unclear> {
        self.of_parts(parts, &[])
    }

    fn of_parts(&self, parts: &[&[u8]], elsewhere: &[(u64, &[u8])]) -> Result<Exits, Unclear> {
        let function = FunctionCode {
            address: 0x1000,
            bytes: &parts.concat(),
            elsewhere,
        };
        exits(&function, self)
    }
}

fn of(parts: &[&[u8]]) -> Result<Exits, Unclear> {
    Made::default().of(parts)
}

fn returns(addresses: &[u64]) -> Exits {
    Exits {
        returns: addresses.to_vec(),
        ..Exits::default()
    }
}

fn left(address: u64, when: When) -> Vec<Left> {
    vec![Left {
        address,
        when,
        behind: Behind::Unknown,
    }]
}

/// A branch of four bytes' distance: the code of its instruction, and from and to where.
fn branch(code: &[u8], from: u64, to: u64) -> Vec<u8> {
    let behind = from + code.len() as u64 + 4;
    let distance = to.wrapping_sub(behind) as u32;
    [code, &distance.to_le_bytes()].concat()
}

fn jmp(from: u64, to: u64) -> Vec<u8> {
    branch(&[0xe9], from, to)
}

/// `lea TO(%rip), %rdx`.
fn lea(from: u64, to: u64) -> Vec<u8> {
    branch(&[0x48, 0x8d, 0x15], from, to)
}

#[test]
fn every_ret_is_an_exit() {
    // test %edi,%edi; je +1; ret; rep ret; ret $8; bnd ret
    let code = [
        0x85, 0xff, 0x74, 0x01, 0xc3, 0xf3, 0xc3, 0xc2, 0x08, 0x00, 0xf2, 0xc3,
    ];
    assert_eq!(of(&[&code]), Ok(returns(&[0x1004, 0x1005, 0x1007, 0x100a])));
}

#[test]
fn a_part_that_is_known_is_the_function_s_own() {
    // je 0x2000; ret, and there: jmp 0x1006 or ret
    let je = branch(&[0x0f, 0x84], 0x1000, 0x2000);
    let back = jmp(0x2000, 0x1006);
    let cold = [&back[..], RET].concat();
    let found = Made::default().of_parts(&[&je, RET], &[(0x2000, &cold)]);
    assert_eq!(found, Ok(returns(&[0x1006, 0x2005])));
}

#[test]
fn a_function_that_is_jumped_to_returns_in_its_place() {
    let code = Made::default().with(0x2000, &[&[0x90], RET]);
    let found = code.of(&[&[0xeb, 0x00], RET, &jmp(0x1003, 0x2000)]);
    assert_eq!(found, Ok(returns(&[0x1002, 0x2001])));
    // On a condition, too.
    let found = code.of(&[&branch(&[0x0f, 0x84], 0x1000, 0x2000), RET]);
    assert_eq!(found.unwrap().returns, [0x1006, 0x2001]);
    // One that jumps back.
    let code = Made::default().with(0x2000, &[&jmp(0x2000, 0x1000), RET]);
    let found = code.of(&[&jmp(0x1000, 0x2000)]).unwrap();
    assert_eq!((found.returns, found.left), (vec![0x2005], vec![]));
}

#[test]
fn code_that_nothing_describes_is_followed_as_far_as_it_is_reached() {
    // test %edi,%edi; je over the first ret and padding; ret; then another function, and data
    let first = [0x85, 0xff, 0x74, 0x04, 0xc3, 0x0f, 0x1f, 0x00, 0xc3];
    let others = [&first[..], &[0x0f, 0x1f, 0x00], RET, &[0x06, 0x06]].concat();
    let made = |code: &[u8]| Made {
        others: vec![(0x2000, code.to_vec())],
        ..Made::default()
    };
    let jump = jmp(0x1000, 0x2000);
    let found = made(&others).of(&[&jump]);
    assert_eq!(found, Ok(returns(&[0x2004, 0x2008])));
    // A jump to the other function is one more jump.
    let far = [&[0x74, 0x02][..], RET, &[0x06], RET].concat();
    let found = made(&far).of(&[&jump]).unwrap();
    assert_eq!((found.returns, found.left), (vec![0x2002, 0x2004], vec![]));
    // Padding is no function: what falls into it goes on after it.
    let code = Made {
        others: vec![(0x1002, vec![0x90; 14])],
        ..Made::default()
    };
    let found = code.with(0x1010, &[RET]).of(&[&[0x31, 0xc0]]);
    assert_eq!(found, Ok(returns(&[0x1010])));
    // Code that cannot be decoded is not followed.
    let found = made(&[0x06]).of(&[&jump, RET]).unwrap();
    assert_eq!(found.left, left(0x1000, When::Always));
}

#[test]
fn a_jump_to_what_returns_its_argument_is_a_return() {
    let stub = [ENDBR64, &[0xff, 0x25, 0xf6, 0x0f, 0x00, 0x00]].concat();
    let function = [jmp(0x1000, 0x2000), RET.to_vec()].concat();
    let filled = |made: Made, fills: u64| {
        let made = Made {
            fills: vec![fills],
            ..made
        };
        let exits = made.of(&[&function]).unwrap();
        let left = exits.left.first();
        let left = left.map(|left| left.behind == Behind::ReturnsArgument);
        (exits.returns, left)
    };
    // A function of the file is not followed then; another one is.
    let own = || Made::default().with(0x2000, &[RET]);
    assert_eq!(filled(own(), 0x2000), (vec![0x1005], Some(true)));
    assert_eq!(filled(own(), 0), (vec![0x1005, 0x2000], None));
    // By a stub's variable, at 0x200a + 0xff6.
    let other = || Made::default().with(0x2000, &[&stub]);
    assert_eq!(filled(other(), 0x3000), (vec![0x1005], Some(true)));
    assert_eq!(filled(other(), 0), (vec![0x1005], Some(false)));
}

#[test]
fn jumps_are_followed_so_far() {
    let mut code = Made::default();
    for number in 1..=5 {
        let start = number * 0x1000 + 0x1000;
        code = code.with(start, &[RET, &jmp(start + 1, start + 0x1000)]);
    }
    let found = code.of(&[&jmp(0x1000, 0x2000)]).unwrap();
    assert_eq!(found.returns, [0x2000, 0x3000, 0x4000, 0x5000]);
    assert_eq!(found.left, left(0x5001, When::Always));
}

#[test]
fn where_it_goes_on_unseen_is_said() {
    let nobody = Made::default();
    let found = nobody.of(&[&jmp(0x1000, 0x2000)]).unwrap();
    assert_eq!(found.left, left(0x1000, When::Always));
    let found = nobody.of(&[&branch(&[0x0f, 0x85], 0x1000, 0x2000), RET]);
    let not_equal = When::Flags(Condition(5));
    assert_eq!(found.unwrap().left, left(0x1000, not_equal.clone()));
    let found = nobody.of(&[&[0x7f, 0x10], RET]).unwrap();
    assert_eq!(found.left, left(0x1000, When::Flags(Condition(0xf))));
    // What cannot be decoded, or comes to the middle of an instruction.
    for (bytes, to) in [(&[0xc3, 0x06][..], 0x2000), (&[0xb0, 0xc3, 0xc3], 0x2001)] {
        let code = Made::default().with(0x2000, &[bytes]);
        let found = code.of(&[&branch(&[0x0f, 0x85], 0x1000, to), RET]);
        assert_eq!(found.unwrap().left, left(0x1000, not_equal.clone()));
    }
    // A stub of the linkage table, with and without the marks of later days.
    for marks in [&[][..], ENDBR64, &[0xf2]] {
        let code = Made::default().with(0x2000, &[marks, &[0xff, 0x25, 0, 0x10, 0, 0]]);
        let found = code.of(&[&jmp(0x1000, 0x2000)]).unwrap();
        assert_eq!(found.left, left(0x1000, When::Always));
        // To a function of the file itself; and without the stub.
        let mut code = code.with(0x3000, &[RET]);
        code.linked = vec![(0x3006 + marks.len() as u64, 0x3000), (0x1106, 0x3000)];
        let found = code.of(&[&jmp(0x1000, 0x2000)]).unwrap();
        assert_eq!((found.returns, found.left), (vec![0x3000], vec![]));
        let found = code.of(&[&[0xff, 0x25, 0, 1, 0, 0]]).unwrap();
        assert_eq!((found.returns, found.left), (vec![0x3000], vec![]));
    }
    // Further away.
    let code = Made::default().with(0x2000, &[RET, &jmp(0x2001, 0x3000)]);
    let found = code.of(&[&jmp(0x1000, 0x2000)]).unwrap();
    assert_eq!(found.returns, [0x2000]);
    assert_eq!(found.left, left(0x2001, When::Always));
    // `jrcxz` has no flags.
    let parts: [&[u8]; 2] = [&[0xe3, 0x10], RET];
    assert_eq!(nobody.of(&parts), Err(Unclear::Branch(0x1000)));
    let code = Made::default().with(0x1010, &[&[0x90; 2], RET]);
    assert_eq!(code.of(&parts).unwrap().returns, [0x1002, 0x1012]);
}

#[test]
fn a_jump_with_a_frame_stays_in_the_function() {
    let code = |target_at_top| {
        Made::default()
            .with(0x2000, &[&[0x90], RET])
            .at_top(0x1000..0x1001, true)
            .at_top(0x1001..0x1006, false)
            .at_top(0x2000..0x2001, target_at_top)
    };
    let parts: [&[u8]; 2] = [&[0x55], &jmp(0x1001, 0x2000)];
    assert_eq!(code(false).of(&parts), Ok(returns(&[0x2001])));
    // A function, which returns to what was put there.
    assert_eq!(code(true).of(&parts).unwrap().returns, [0x2001]);
    // Where the sweep cannot follow, the call would not be found.
    let nobody = Made::default().at_top(0x1001..0x1006, false);
    assert_eq!(nobody.of(&parts), Err(Unclear::Branch(0x1001)));
}

#[test]
fn data_among_the_code_is_noticed() {
    // jmp +1 into the middle of mov $0xc3,%al
    let found = of(&[&[0xeb, 0x01, 0xb0, 0xc3]]);
    assert_eq!(found, Err(Unclear::Undecodable(0x1003)));
    // A call, too.
    let found = of(&[&branch(&[0xe8], 0x1000, 0x1006), &[0xb0, 0xc3], RET]);
    assert_eq!(found, Err(Unclear::Undecodable(0x1006)));
    // Over the lock prefix: je +1; lock add %eax,(%rdi); ret
    let found = of(&[&[0x74, 0x01, 0xf0, 0x01, 0x07], RET]);
    assert_eq!(found, Ok(returns(&[0x1005])));
}

#[test]
fn what_does_not_end_falls_into_the_next() {
    let code = Made::default().with(0x1010, &[RET]);
    // xor %eax,%eax; 0x1010 is the next that a function can begin at.
    assert_eq!(code.of(&[&[0x31, 0xc0]]).unwrap().returns, [0x1010]);
    // Calls at the end do not come back, and padding is none.
    let call = branch(&[0xe8], 0x1000, 0x5000);
    assert_eq!(code.of(&[&call]), Err(Unclear::Never));
    assert_eq!(code.of(&[RET, &[0x90, 0x66, 0x90]]), Ok(returns(&[0x1000])));
    // With a frame: the compiler knows that it is never reached.
    let code = code.at_top(0x1000..0x1010, false);
    assert_eq!(code.of(&[&[0x31, 0xc0]]), Err(Unclear::Never));
}

#[test]
fn what_is_not_known_is_said() {
    assert_eq!(of(&[]), Err(Unclear::NoCode));
    assert_eq!(of(&[UD2]), Err(Unclear::Never));
    assert_eq!(of(&[RET, &[0x06]]), Err(Unclear::Undecodable(0x1001)));
    // An interrupt's return is no function's.
    assert_eq!(of(&[&[0x48, 0xcf]]), Err(Unclear::Undecodable(0x1000)));
    let long = vec![0xc3; crate::breakpoint::FUNCTION_BYTES_MAX + 1];
    assert_eq!(of(&[&long]), Err(Unclear::TooLong));
    let part = vec![0xc3; crate::breakpoint::FUNCTION_BYTES_MAX];
    let parts = [0x10_0000, 0x20_0000, 0x30_0000, 0x40_0000].map(|at| (at, &part[..]));
    let found = Made::default().of_parts(&[RET], &parts);
    assert_eq!(found, Err(Unclear::TooLong));
    // A system call continues after it.
    assert_eq!(of(&[&[0x0f, 0x05], RET]), Ok(returns(&[0x1002])));
}

fn outside(target: Target, inside: Range<u64>) -> When {
    let inside = vec![inside];
    When::Outside { target, inside }
}

#[test]
fn a_computed_jump_at_the_end_may_leave() {
    let when = outside(Target::Register(0), 0x1000..0x1002);
    assert_eq!(of(&[JUMP]).unwrap().left, left(0x1000, when));
    // jmp *0x10(%r11,%rax,8)
    let jump = [0x41, 0xff, 0x64, 0xc3, 0x10];
    let target = Target::Memory {
        base: Some(11),
        index: Some((0, 8)),
        displacement: 0x10,
    };
    let when = outside(target, 0x1000..0x1005);
    assert_eq!(of(&[&jump]).unwrap().left, left(0x1000, when));
    // jmp *-8(%rdi)
    let target = Target::Memory {
        base: Some(7),
        index: None,
        displacement: -8,
    };
    let when = outside(target, 0x1000..0x1003);
    assert_eq!(of(&[&[0xff, 0x67, 0xf8]]).unwrap().left, left(0x1000, when));
    // jmp *0x10(%rip); jmp *%fs:0x10
    for jump in [
        &[0xff, 0x25, 0x10, 0, 0, 0][..],
        &[0x64, 0xff, 0x24, 0x25, 0x10, 0, 0, 0],
    ] {
        assert_eq!(of(&[jump]).unwrap().left, left(0x1000, When::Always));
    }
    // jmp *%fs:0x10(%rax); ljmp *(%rax); jmp *(%eax)
    for jump in [
        &[0x64, 0xff, 0x60, 0x10][..],
        &[0xff, 0x28],
        &[0x67, 0xff, 0x20],
    ] {
        assert_eq!(of(&[jump]), Err(Unclear::ComputedJump(0x1000)));
    }
}

#[test]
fn a_switch_stays_in_the_function() {
    // push %rbx, and a jump with a frame.
    let framed = Made::default().at_top(0x1001..0x1003, false);
    assert_eq!(framed.of(&[&[0x53], JUMP, RET]), Ok(returns(&[0x1003])));
}

#[test]
fn a_jump_without_tracking_is_a_switch_only_by_its_table() {
    let unclear = |address| Err(Unclear::NoBreakpoint(address));
    // notrack jmp *%rax; notrack jmp *0x10(%rip); notrack jmp *0x3000(,%rax,8)
    let by_table = [0x3e, 0xff, 0x24, 0xc5, 0, 0x30, 0, 0];
    assert_eq!(of(&[NOTRACK, RET]), unclear(0x1000));
    let variable = [0x3e, 0xff, 0x25, 0x10, 0, 0, 0];
    assert_eq!(of(&[ENDBR64, &variable, RET]), unclear(0x1004));
    assert_eq!(of(&[ENDBR64, &by_table, RET]), unclear(0x1004));
    // The first address there is in the function, or its beginning.
    let table = |first| Made::default().addresses(0x3000, &[first]);
    let found = table(0x100c).of(&[ENDBR64, &by_table, RET]);
    assert_eq!(found, Ok(returns(&[0x100c])));
    let found = table(0x1000).of(&[ENDBR64, &by_table, RET]);
    assert_eq!(found, unclear(0x1004));
    // movslq (%rdx,%rax,4),%rax; add %rdx,%rax; notrack jmp *%rax; ret
    let switch = [0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0];
    let found = of(&[ENDBR64, &switch, NOTRACK, RET]);
    assert_eq!(found, Ok(returns(&[0x100e])));
    // With a frame.
    let framed = Made::default().at_top(0x1001..0x1004, false);
    assert_eq!(framed.of(&[&[0x53], NOTRACK, RET]), Ok(returns(&[0x1004])));
    // By the linker's table to a function of the file, which is followed, or which it cannot be.
    let linked = Made {
        linked: vec![(0x101b, 0x2000)],
        ..Made::default()
    };
    assert_eq!(linked.of(&[ENDBR64, &variable, RET]), unclear(0x1004));
    let linked = linked.with(0x2000, &[RET]);
    let found = linked.of(&[ENDBR64, &variable, RET]);
    assert_eq!(found, Ok(returns(&[0x100b, 0x2000])));
}

#[test]
fn tracked_jumps_leave_when_they_cannot_land() {
    let found = of(&[ENDBR64, JUMP]).unwrap();
    assert_eq!(found.left, left(0x1004, When::Always));
    // They may land at the second.
    let found = of(&[ENDBR64, JUMP, ENDBR64, RET]).unwrap();
    let when = outside(Target::Register(0), 0x1000..0x100b);
    assert_eq!(found.left, left(0x1004, when));
    assert_eq!(found.returns, [0x100a]);
}

#[test]
fn a_jump_that_may_come_to_itself_is_refused() {
    // What only the jump can go to ends with it again.
    let found = of(&[JUMP, &[0x90, 0xff, 0xc0], &[0xeb, 0xf9]]);
    assert_eq!(found, Err(Unclear::ComputedJump(0x1000)));
    // Where it would not go without a frame.
    let framed = Made::default().at_top(0x1002..0x1100, false);
    assert!(framed.of(&[JUMP, &[0xff, 0xc0], &[0xeb, 0xfa]]).is_ok());
    // In one that is jumped to, the jump is where following ends.
    let code = Made::default().with(0x2000, &[JUMP, &[0xff, 0xc0], &[0xeb, 0xfa]]);
    let found = code.of(&[&jmp(0x1000, 0x2000)]).unwrap();
    assert_eq!(found.left, left(0x1000, When::Always));
}

/// `cmp $2, %edi; ja 0x1100; lea 0x3000(%rip), %rdx; movslq (%rdx,%rdi,4), %rax;
/// add %rdx, %rax; jmp *%rax`, then at 0x1019 three `ret`, and one at 0x1100.
fn switch() -> Vec<u8> {
    let code = [
        &[0x83, 0xff, 0x02][..],
        &branch(&[0x0f, 0x87], 0x1003, 0x1100),
        &lea(0x1009, 0x3000),
        &[0x48, 0x63, 0x04, 0xba],
        &[0x48, 0x01, 0xd0],
        JUMP,
    ];
    let mut code = code.concat();
    assert_eq!(code.len(), 0x19);
    code.resize(0x101, 0xc3);
    code
}

fn distances(targets: &[u64]) -> Vec<u32> {
    let targets = targets.iter();
    targets.map(|to| to.wrapping_sub(0x3000) as u32).collect()
}

#[test]
fn tables_are_read() {
    let all: Vec<u64> = (0x1019..0x1101).collect();
    let code = Made::default().words(0x3000, &distances(&[0x1019, 0x101a, 0x1019]));
    assert_eq!(code.of(&[&switch()]), Ok(returns(&all)));
    // An entry that is none: too few, in the middle of an instruction, nowhere.
    for words in [
        &[0x1019, 0x101a][..],
        &[0x1019, 0x1001, 0x1019],
        &[0x1019, 0x9000, 0x1019],
    ] {
        let code = Made::default().words(0x3000, &distances(words));
        let found = code.of(&[&switch()]).unwrap();
        assert_eq!(found.left.len(), 1, "{words:x?}");
        assert_eq!(found.left[0].address, 0x1017);
    }
    // One that is in another function.
    let words = distances(&[0x1019, 0x2000, 0x1019]);
    let code = Made::default().with(0x2000, &[RET]).words(0x3000, &words);
    let found = code.of(&[&switch()]).unwrap();
    assert_eq!((found.returns.last(), found.left.len()), (Some(&0x2000), 0));
}

/// Whether the table is not read, when something in front of the jump is otherwise.
fn is_unclear(change: impl Fn(&mut Vec<u8>)) -> bool {
    let mut code = switch();
    change(&mut code);
    let made = Made::default().words(0x3000, &distances(&[0x1019, 0x101a, 0x1019]));
    let found = made.of(&[&code]).expect("it returns");
    found.left.len() == 1
}

#[test]
fn tables_must_be_clear() {
    assert!(!is_unclear(|_| ()));
    // jbe, je: another condition. cmp %rsi: another register.
    assert!(is_unclear(|code| code[4] = 0x86));
    assert!(is_unclear(|code| code[4] = 0x84));
    assert!(is_unclear(|code| code[1] = 0xfe));
    // Another scale; sub; another register is added.
    assert!(is_unclear(|code| code[0x13] = 0x7a));
    assert!(is_unclear(|code| code[0x15] = 0x29));
    assert!(is_unclear(|code| code[0x16] = 0xc8));
    // mov $0, %edi, or %edx, where the comparison, or the table's address, was; then they are
    // not known.
    assert!(is_unclear(
        |code| code[0x9..0x10].copy_from_slice(&[0xbf, 0, 0, 0, 0, 0x66, 0x90])
    ));
    assert!(is_unclear(
        |code| code[0x9..0x10].copy_from_slice(&[0xba, 0, 0, 0, 0, 0x66, 0x90])
    ));
}

#[test]
fn nothing_may_come_between_a_comparison_and_its_jump() {
    let into = |to: u64| {
        let into = jmp(0x1020, to);
        let mut code = switch();
        code.truncate(0x19);
        code.resize(0x20, 0xc3);
        code.extend(into);
        code.resize(0x101, 0xc3);
        let words = distances(&[0x1019, 0x2000, 0x1019]);
        let made = Made::default().with(0x2000, &[RET]).words(0x3000, &words);
        made.of(&[&code])
    };
    assert_eq!(into(0x1000).unwrap().returns.last(), Some(&0x2000));
    // It is a switch all the same, but its table is unknown.
    assert_ne!(into(0x1009).unwrap().returns.last(), Some(&0x2000));
    assert_eq!(into(0x1017), Err(Unclear::ComputedJump(0x1017)));
}

#[test]
fn a_switch_in_a_loop_stays_in_the_function() {
    // movslq (%rdx,%rdi,4),%rax; add %rdx,%rax; jmp *%rax, and its cases: jmp 0x1000 and
    // jmp *%rcx.
    let switch = [0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xd0, 0xff, 0xe0];
    let found = of(&[&switch, &[0xeb, 0xf5], &[0xff, 0xe1]]).unwrap();
    let when = outside(Target::Register(1), 0x1000..0x100d);
    assert_eq!(found.left, left(0x100b, when));
    // add %rax,%rdx; jmp *%rdx: the other way round.
    let switch = [0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xc2, 0xff, 0xe2];
    assert_eq!(of(&[&switch, &[0xeb, 0xf5], RET]), Ok(returns(&[0x100b])));
    // The table's address is another one meanwhile: xor %edx,%edx.
    let other = [
        0x48, 0x63, 0x04, 0xba, 0x31, 0xd2, 0x48, 0x01, 0xd0, 0xff, 0xe0,
    ];
    let found = of(&[&other, &[0xeb, 0xf3], RET]);
    assert_eq!(found, Err(Unclear::ComputedJump(0x1009)));
}

#[test]
fn tables_of_addresses_are_read() {
    // cmp $1,%eax; ja +10; mov %eax,%eax; jmp *0x3000(,%rax,8); ret; ret
    let switch = [
        &[0x83, 0xf8, 0x01, 0x77, 0x0a, 0x89, 0xc0][..],
        &[0xff, 0x24, 0xc5, 0x00, 0x30, 0x00, 0x00],
        RET,
        RET,
    ];
    let code = Made::default().addresses(0x3000, &[0x100e, 0x100f]);
    assert_eq!(code.of(&switch), Ok(returns(&[0x100e, 0x100f])));
    // movzbl %al,%eax; jmp *0x3000(,%rax,8)
    let whole = [&[0x0f, 0xb6, 0xc0], switch[1], RET];
    let code = Made::default().addresses(0x3000, &[0x100a; 256]);
    assert_eq!(code.of(&whole), Ok(returns(&[0x100a])));
    // and $1,%eax; mov 0x3000(,%rax,8),%rax; jmp *%rax
    let load = [0x48, 0x8b, 0x04, 0xc5, 0, 0x30, 0, 0];
    let code = Made::default().addresses(0x3000, &[0x100d, 0x100d]);
    let found = code.of(&[&[0x83, 0xe0, 0x01], &load, JUMP, RET]);
    assert_eq!(found, Ok(returns(&[0x100d])));
}

#[test]
fn nothing_is_said_twice() {
    // Two ways to one function, and two conditions to nobody.
    let code = Made::default().with(0x2000, &[RET]);
    let je = |from, to| branch(&[0x0f, 0x84], from, to);
    let found = code.of(&[
        &je(0x1000, 0x2000),
        &je(0x1006, 0x2000),
        &je(0x100c, 0x5000),
        RET,
    ]);
    let wanted = Exits {
        returns: vec![0x1012, 0x2000],
        left: left(0x100c, When::Flags(Condition(4))),
    };
    assert_eq!(found, Ok(wanted));
    // A piece that holds the function, as another source tells its bounds.
    let code = Made::default().with(0x0ff0, &[&[0x90; 16], RET, &jmp(0x1001, 0x1008), UD2, RET]);
    let found = code.of(&[RET, &jmp(0x1001, 0x1008)]).unwrap();
    assert_eq!(found.returns, [0x1000, 0x1008]);
}

/// All that a hostile file may say.
fn made(pieces: Vec<(u64, Vec<u8>)>, at_top: Vec<(u8, u8, bool)>, data: Vec<u8>) -> Made {
    let ranges = at_top.into_iter().map(|(from, bytes, is_at_top)| {
        let from = 0x1000 + u64::from(from);
        (from..from + u64::from(bytes), is_at_top)
    });
    Made {
        pieces,
        others: vec![(0x1000, data.clone())],
        at_top: ranges.collect(),
        data: vec![(0x3000, data)],
        linked: Vec::new(),
        fills: Vec::new(),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_looked_through(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        part in proptest::collection::vec(any::<u8>(), 0..16),
        at in prop_oneof![Just(0x1000u64), any::<u64>()],
        pieces in proptest::collection::vec(
            (
                prop_oneof![0x0f80u64..0x1100, any::<u64>()],
                proptest::collection::vec(any::<u8>(), 0..32),
            ),
            0..4,
        ),
        at_top in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<bool>()), 0..4),
        data in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let function = FunctionCode { address: at, bytes: &bytes, elsewhere: &[(!at, &part)] };
        if let Ok(found) = exits(&function, &made(pieces, at_top, data)) {
            prop_assert!(found != Exits::default());
            let addresses: Vec<u64> = found.left.iter().map(|left| left.address).collect();
            for list in [&found.returns, &addresses] {
                prop_assert!(list.is_sorted_by(|one, next| one < next));
            }
        }
    }

    /// The same with code of which more makes sense.
    #[test]
    fn any_branches_are_followed(
        choices in proptest::collection::vec((0usize..12, any::<u8>()), 1..40),
        at_top in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<bool>()), 0..6),
    ) {
        let mut bytes = Vec::new();
        for (choice, number) in choices {
            let short: [&[u8]; 12] = [
                RET, JUMP, NOTRACK, ENDBR64, &[0x74, number], &[0xeb, number], &[0x90],
                &[0x83, 0xf8, 3, 0x77, number], &[0xff, 0x24, 0xc5, 0, 0x30, 0, 0],
                &[0xe3, number], &[0x89, 0xf8], &[0xf0, 0x01, 0x07],
            ];
            bytes.extend(short[choice]);
        }
        let half = bytes.len() / 2;
        let pieces = vec![(0x1000 + half as u64, bytes[half..].to_vec())];
        let made = made(pieces, at_top, [0x00, 0x10, 0, 0, 0, 0, 0, 0].repeat(4));
        let function = FunctionCode { address: 0x1000, bytes: &bytes[..half], elsewhere: &[] };
        let _ = exits(&function, &made);
    }
}
