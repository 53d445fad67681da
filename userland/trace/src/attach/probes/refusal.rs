// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why a file lacks what a spec requests, as errors.

use crate::spec::{CountedTexts, ProbeSpec};
use anyhow::anyhow;
use nsprobe_probes::Refused;

/// Adds the target to the commands that the refusal suggests. A parser does not know which target
/// its file belongs to.
pub(super) fn with_target(why: Refused, path: &str, words: &str) -> Refused {
    let list = |words: &str| format!("`nsprobe list {words}{path}`");
    match why {
        Refused::Because(causes) => {
            let causes = causes.into_iter();
            let causes = causes.map(|cause| cause.replace(&list(""), &list(words)));
            Refused::Because(causes.collect())
        }
        why => why,
    }
}

/// Why a spec does not match a file.
pub(super) fn refusal(spec: &ProbeSpec, counted: CountedTexts<'_>, why: Refused) -> anyhow::Error {
    match why {
        Refused::Spec(error) => spec.error(&error, counted).into(),
        why => because(why),
    }
}

/// The reason why a file lacks what a spec requests.
pub fn because(why: Refused) -> anyhow::Error {
    let causes = match why {
        Refused::Because(causes) => causes,
        Refused::Spec(error) => vec![error.message],
        Refused::NeedsDebugFiles => vec!["its debug files are needed".to_owned()],
    };
    let mut causes = causes.into_iter().rev();
    let first = anyhow!(causes.next().unwrap_or_default());
    causes.fold(first, |error, cause| error.context(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_is_told_with_the_target() {
        let why = "no function x in /app/svc; `nsprobe list /app/svc` shows all";
        let why = Refused::Because(vec!["it failed".to_owned(), why.to_owned()]);
        let text = because(with_target(why, "/app/svc", "-c web "));
        assert_eq!(
            format!("{text:#}"),
            "it failed: no function x in /app/svc; `nsprobe list -c web /app/svc` shows all"
        );
    }
}
