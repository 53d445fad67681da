# SPDX-License-Identifier: MIT OR Apache-2.0
# Samples by key and their medians, for the tables.

function add(key, value) { samples[key, ++count[key]] = value }

# The median; 'low' and 'high' are set to the ends.
function median(key,    n, i, j, value, sorted) {
    n = count[key]
    if (!n) return ""
    for (i = 1; i <= n; i++) {
        value = samples[key, i] + 0
        for (j = i - 1; j >= 1 && sorted[j] > value; j--) sorted[j + 1] = sorted[j]
        sorted[j + 1] = value
    }
    low = sorted[1]; high = sorted[n]
    return sorted[int((n + 1) / 2)]
}
