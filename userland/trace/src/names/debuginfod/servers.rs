// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debuginfod servers that the environment names.

use std::env;

/// How URLs begin that nobody between can answer for.
pub(crate) const SECURE: &str = "https://";

/// The servers that the environment names: at least one. The error is the user's.
pub fn urls() -> Result<Vec<String>, String> {
    checked(&env::var("DEBUGINFOD_URLS").unwrap_or_default())
}

pub(crate) fn checked(urls: &str) -> Result<Vec<String>, String> {
    let urls: Vec<String> = urls.split_whitespace().map(str::to_owned).collect();
    if urls.is_empty() {
        return Err(
            "--debuginfod asks the servers of DEBUGINFOD_URLS, which is empty: set it, such as to \
             https://debuginfod.debian.net (sudo keeps it with --preserve-env=DEBUGINFOD_URLS)"
                .to_owned(),
        );
    }
    let is_one = |url: &&String| url.starts_with(SECURE) || url.starts_with("http://");
    match urls.iter().find(|url| !is_one(url)) {
        Some(url) => Err(format!(
            "DEBUGINFOD_URLS has {url}, which is neither http:// nor https://"
        )),
        None => Ok(urls),
    }
}
