// SPDX-License-Identifier: MIT OR Apache-2.0
//! What compilers append to a function's name for code that they made of it.
//!
//! A *copy* is called in place of the function (`f.constprop.0`, `f.isra.0`): each of its calls
//! is one of the function. A *piece* is code that the compiler moved out of the function
//! (`f.cold`, `f.part.0`): a call that has begun elsewhere goes on there, so a probe there counts
//! no calls.

/// A name, and what was appended to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suffixed<'a> {
    /// The name without it.
    pub(crate) base: &'a str,
    /// Whether the code is a piece.
    pub(crate) is_piece: bool,
    /// Whether it is jumped to in the middle of a call, so that nothing is where it is at the
    /// beginning of a function.
    pub(crate) is_jumped_to: bool,
    /// Whether it may get other arguments than the function, or in other registers.
    pub(crate) changes_arguments: bool,
}

/// What a word of a suffix says.
struct Word {
    word: &'static str,
    piece: bool,
    arguments: bool,
    /// A number belongs to it; without one it is a name like any other.
    numbered: bool,
    /// Only after a mangled name: of others it may well be a part.
    mangled: bool,
}

const fn copy(word: &'static str, arguments: bool) -> Word {
    Word {
        word,
        piece: false,
        arguments,
        numbered: true,
        mangled: false,
    }
}

const fn piece(word: &'static str, numbered: bool, mangled: bool) -> Word {
    Word {
        word,
        piece: true,
        arguments: true,
        numbered,
        mangled,
    }
}

const WORDS: [Word; 17] = [
    // GCC's copies for constant or unused arguments, and LLVM's.
    copy("constprop", true),
    copy("isra", true),
    copy("specialized", true),
    copy("clone", true),
    // Static functions of one name that LTO put into one file.
    copy("lto_priv", false),
    copy("llvm", false),
    Word {
        numbered: false,
        ..copy("localalias", false)
    },
    // Code that is seldom run; GCC 8 and LLVM number it.
    piece("cold", false, false),
    // What is left of a function whose beginning was inlined into its callers.
    piece("part", true, false),
    // LLVM's sections of basic blocks.
    piece("__part", true, false),
    // Bodies of OpenMP's regions.
    piece("_omp_fn", true, false),
    piece("omp_outlined", false, true),
    // The parts of a coroutine that run when it is resumed or destroyed: GCC's and LLVM's.
    piece("actor", false, true),
    piece("destroy", false, true),
    piece("resume", false, true),
    piece("cleanup", false, true),
    // It chooses an implementation, and runs once.
    piece("resolver", false, true),
];

/// What was appended to a name; none when nothing was that we know.
pub(crate) fn suffixed(name: &str) -> Option<Suffixed<'_>> {
    let is_mangled = crate::demangle::is_mangled(name);
    // A name does not begin with what is appended to one.
    let dots = name.match_indices('.').filter(|(at, _)| *at > 0);
    dots.filter_map(|(at, _)| {
        let (base, rest) = name.split_at_checked(at)?;
        appended(base, rest.get(1..)?, is_mangled)
    })
    .next()
}

/// Whether all of `rest` is known to be appended.
fn appended<'a>(base: &'a str, rest: &str, is_mangled: bool) -> Option<Suffixed<'a>> {
    let mut found = Suffixed {
        base,
        is_piece: false,
        is_jumped_to: false,
        changes_arguments: false,
    };
    let mut parts = rest.split('.').peekable();
    while let Some(part) = parts.next() {
        let word = WORDS.iter().find(|word| word.word == part)?;
        let is_number = |part: &&str| {
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            digits && !part.is_empty()
        };
        let mut numbers = 0;
        while parts.next_if(is_number).is_some() {
            numbers += 1;
        }
        if (word.numbered && numbers == 0) || (word.mangled && !is_mangled) {
            return None;
        }
        found.is_piece |= word.piece;
        found.is_jumped_to |= ["cold", "__part"].contains(&word.word);
        found.changes_arguments |= word.arguments;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_whole_and_pieces_are_not() {
        for (name, base, is_piece, changes_arguments) in [
            ("slow.constprop.0", "slow", false, true),
            ("slow.isra.0.constprop.1", "slow", false, true),
            ("init.lto_priv.0", "init", false, false),
            ("get.llvm.1234567", "get", false, false),
            ("get.localalias", "get", false, false),
            ("slow.cold", "slow", true, true),
            ("slow.cold.12", "slow", true, true),
            ("slow.part.0", "slow", true, true),
            ("slow.part.0.isra.0", "slow", true, true),
            ("slow.constprop.0.cold", "slow", true, true),
            ("_Z3addii.cold", "_Z3addii", true, true),
            ("_Z3runv._omp_fn.0", "_Z3runv", true, true),
            ("_Z3runv.actor", "_Z3runv", true, true),
            ("_Z3runv.resolver", "_Z3runv", true, true),
            ("camlA.b_12.cold", "camlA.b_12", true, true),
        ] {
            let wanted = Suffixed {
                base,
                is_piece,
                is_jumped_to: name.contains("cold"),
                changes_arguments,
            };
            assert_eq!(suffixed(name), Some(wanted), "{name}");
        }
    }

    #[test]
    fn names_with_dots_are_names() {
        for name in [
            "plain",
            "main.part",
            "part.init.0",
            "main.actor",
            "main.(*cold).get",
            "os.(*File).resume",
            ".cold",
            "a.cold.b",
            "_Z3addii.avx2.0",
            "",
            ".",
            "..",
        ] {
            assert_eq!(suffixed(name), None, "{name}");
        }
    }
}
