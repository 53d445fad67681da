// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many of the hits are wanted.

use clap::Args;
use libnsprobe::common::limit::RATE_MAX;
use libnsprobe::Limits;

/// How many of the hits are wanted.
#[derive(Debug, Args)]
pub(super) struct LimitArguments {
    /// One in N calls only, of those that match: counted for each probe and CPU, from the first on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    every: Option<u32>,
    /// At most N calls a second of each probe, of those that match, and BURST at once (N, when
    /// nothing is said); the others are counted
    #[arg(long, value_name = "N[:BURST]", value_parser = rate)]
    rate: Option<(u32, u32)>,
    /// Turn a probe off, for good, that is hit more than N times a second, by whomever: it slows
    /// the machine
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=RATE_MAX as i64))]
    runaway: Option<u32>,
}

impl LimitArguments {
    pub(super) fn plan(&self) -> Limits {
        let (rate, burst) = self.rate.unwrap_or_default();
        Limits {
            every: self.every.unwrap_or(0),
            rate,
            burst,
            runaway: self.runaway.unwrap_or(0),
        }
    }
}

/// `N` or `N:BURST`.
fn rate(text: &str) -> Result<(u32, u32), String> {
    let (rate, burst) = match text.split_once(':') {
        Some((rate, burst)) => (rate, Some(burst)),
        None => (text, None),
    };
    let number = |text: &str, what: &str| -> Result<u32, String> {
        let number = text.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("{what} is no number from 1 on, such as 100 or 100:10"))
    };
    let rate = number(rate, "N")?;
    if rate > RATE_MAX {
        return Err(format!("N is at most {RATE_MAX}"));
    }
    let burst = burst.map(|burst| number(burst, "BURST")).transpose()?;
    Ok((rate, burst.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers() {
        assert_eq!(rate("100"), Ok((100, 0)));
        assert_eq!(rate("100:7"), Ok((100, 7)));
        for bad in [
            "",
            "0",
            "-1",
            "100:",
            "100:0",
            ":5",
            "1e3",
            "100000001",
            "5/s",
        ] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
