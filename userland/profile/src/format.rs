// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which formats there are.

use crate::{flamegraph, folded, otlp, pprof, speedscope, Profile};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A format of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A flame graph as a picture for browsers, `.svg`.
    Flamegraph,
    /// A line for each stack, `.folded`: frames from the outermost on, `;` between them, a space,
    /// and the number.
    Folded,
    /// pprof's `profile.proto`, `.pb.gz`.
    Pprof,
    /// OpenTelemetry's `ProfilesData`, `.otlp`.
    Otlp,
    /// speedscope's own format, `.speedscope.json`.
    Speedscope,
}

/// The ending of a file's name says no format.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the name {} does not end in one of {}", .0.display(), endings())]
pub struct UnknownEnding(PathBuf);

/// Why a profile was not written.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No sample has a number greater than zero.
    #[error("there is nothing to show: no stack was counted")]
    Empty,
    /// The sum of all numbers is more than 2^63 - 1.
    #[error("its numbers are too great: their sum has more than 63 bits")]
    TooGreat,
    /// It cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Format {
    /// All there are.
    pub const ALL: [Format; 5] = [
        Format::Flamegraph,
        Format::Folded,
        Format::Pprof,
        Format::Otlp,
        Format::Speedscope,
    ];

    /// How the names of its files end, with the dot.
    pub fn ending(self) -> &'static str {
        match self {
            Format::Flamegraph => ".svg",
            Format::Folded => ".folded",
            Format::Pprof => ".pb.gz",
            Format::Otlp => ".otlp",
            Format::Speedscope => ".speedscope.json",
        }
    }

    /// The format that the ending of a file's name says.
    pub fn of(path: &Path) -> Result<Format, UnknownEnding> {
        let name = path.file_name().unwrap_or_default();
        let name = name.as_encoded_bytes().to_ascii_lowercase();
        let mut all = Format::ALL.into_iter();
        all.find(|format| name.ends_with(format.ending().as_bytes()))
            .ok_or_else(|| UnknownEnding(path.to_owned()))
    }
}

fn endings() -> String {
    Format::ALL.map(Format::ending).join(", ")
}

/// Writes a profile.
pub fn write(format: Format, profile: &Profile, out: &mut impl Write) -> Result<(), ProfileError> {
    let mut total = 0i64;
    for weight in profile.samples.iter().map(Profile::weight) {
        let weight = i64::try_from(weight).map_err(|_| ProfileError::TooGreat)?;
        total = total.checked_add(weight).ok_or(ProfileError::TooGreat)?;
    }
    if total == 0 {
        return Err(ProfileError::Empty);
    }
    match format {
        Format::Flamegraph => flamegraph::write(profile, out)?,
        Format::Folded => folded::write(profile, out)?,
        Format::Pprof => pprof::write(profile, out)?,
        Format::Otlp => otlp::write(profile, out)?,
        Format::Speedscope => speedscope::write(profile, out)?,
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_ending_says_the_format() {
        let of = |path| Format::of(Path::new(path)).ok();
        assert_eq!(of("a/b.svg"), Some(Format::Flamegraph));
        assert_eq!(of("A.SVG"), Some(Format::Flamegraph));
        assert_eq!(of("x.folded"), Some(Format::Folded));
        assert_eq!(of("web.pb.gz"), Some(Format::Pprof));
        assert_eq!(of("x.speedscope.json"), Some(Format::Speedscope));
        for other in ["x.json", "x.gz", "svg", "x.svg/", "x.svg/y", "", "/"] {
            let is_svg_folder = other == "x.svg/";
            assert_eq!(of(other).is_some(), is_svg_folder, "{other}");
        }
        assert_eq!(
            UnknownEnding("a.txt".into()).to_string(),
            "the name a.txt does not end in one of .svg, .folded, .pb.gz, .otlp, .speedscope.json"
        );
    }

    #[test]
    fn what_cannot_be_shown_is_refused_in_all_formats() {
        for format in Format::ALL {
            let mut profile = sample::profile();
            profile.samples.clear();
            let empty = write(format, &profile, &mut Vec::new());
            assert!(matches!(empty, Err(ProfileError::Empty)), "{format:?}");
            profile.samples = vec![sample::of_value(-1), sample::of_value(0)];
            let empty = write(format, &profile, &mut Vec::new());
            assert!(matches!(empty, Err(ProfileError::Empty)), "{format:?}");
            profile.samples = vec![sample::of_value(i64::MAX), sample::of_value(1)];
            let great = write(format, &profile, &mut Vec::new());
            assert!(matches!(great, Err(ProfileError::TooGreat)), "{format:?}");
        }
    }

    #[test]
    fn a_full_disk_is_an_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for format in Format::ALL {
            let failed = write(format, &sample::profile(), &mut Full);
            let is_full = matches!(&failed, Err(ProfileError::Io(error))
                if error.kind() == io::ErrorKind::StorageFull);
            assert!(is_full, "{format:?}: {failed:?}");
        }
    }
}
