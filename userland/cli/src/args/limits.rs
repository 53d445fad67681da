// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many of the hits a probe takes.

use super::help::LIMITS;
use clap::Args;
use libnsprobe::common::limit::RATE_MAX;
use libnsprobe::HitLimits;

/// Options that bound how many hits a probe takes.
#[derive(Debug, Args)]
pub(super) struct LimitArguments {
    /// Only one in N calls of those that match
    ///
    /// Each probe counts its calls on each CPU, and takes the first.
    #[arg(long, help_heading = LIMITS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    every: Option<u32>,
    /// At most N calls a second of each probe
    ///
    /// BURST is how many may come at once; its default is N. The others are counted as limited.
    #[arg(long, help_heading = LIMITS, value_name = "N[:BURST]", value_parser = rate)]
    rate: Option<(u32, u32)>,
    /// Turn off a probe with more than N hits a second
    ///
    /// Hits of all processes together count. The probe stays off.
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=RATE_MAX as i64))]
    runaway: Option<u32>,
}

impl LimitArguments {
    pub(super) fn plan(&self) -> HitLimits {
        let (rate, burst) = self.rate.unwrap_or_default();
        HitLimits {
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
