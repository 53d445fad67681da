# SPDX-License-Identifier: MIT OR Apache-2.0
# The events of a trace's metadata (CTF 1.8, TSDL) and their fields, in the form of
# userland/ctf/tests/golden.
{ sub(/\r$/, "") }
/^event \{/ { in_event = 1; next }
in_event && /name = / { split($0, part, "\""); name = part[2] }
in_event && /fields := struct/ { in_fields = 1; print name; next }
in_fields && /^\t\};|^\t\}/ { in_fields = 0 }
/^\};/ { in_event = 0; in_fields = 0 }
!in_fields { next }
{ told = "" }
/integer \{/ {
    match($0, /size = [0-9]+/); bits = substr($0, RSTART + 7, RLENGTH - 7)
    told = (/base = 16/ ? "hex" : /signed = 1/ ? "int" : "uint") bits
    if (/encoding = UTF8/) told = "char"
}
/string/ { told = "string" }
told != "" {
    field = $0
    sub(/^.*\} */, "", field); sub(/^[ \t]*string */, "", field); sub(/;.*$/, "", field)
    # Names have an underscore in front.
    sub(/^_/, "", field)
    if (field ~ /^_.*_length$/) { length_bits = bits; next }
    if (match(field, /\[ *_.*\]/)) { told = told "[u" length_bits "]"; sub(/\[.*/, "", field) }
    else if (match(field, /\[ *[0-9]+ *\]/)) {
        told = told substr(field, RSTART, RLENGTH); sub(/\[.*/, "", field)
    }
    print "  " field " " told
}
