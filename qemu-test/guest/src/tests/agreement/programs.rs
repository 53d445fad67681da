// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs whose stacks are compared, and what they are given to do.

use super::Program;
use std::fs;
use std::process::Command;

const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
const LIBSTDCPP: &str = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";

/// What is the same for most.
const PLAIN: Program = Program {
    words: &[],
    input: "",
    user: "root",
    files: &[],
    is_go: false,
    is_steadied: false,
    times: 3,
    prepare: || {},
    least: 0,
    early: 0,
};

/// Small programs in C.
pub(super) const TOOLS: &[Program] = &[
    Program {
        words: &["/usr/bin/sqlite3", ":memory:", SQL],
        files: &[
            ("/usr/lib/x86_64-linux-gnu/libsqlite3.so.0", 3500),
            (LIBC, 1500),
        ],
        least: 800,
        early: 30,
        ..PLAIN
    },
    Program {
        words: &[
            "/usr/bin/openssl",
            "x509",
            "-in",
            "/etc/ssl/certs/ssl-cert-snakeoil.pem",
            "-text",
            "-out",
            CERTIFICATE,
        ],
        files: &[
            ("/usr/bin/openssl", 1500),
            ("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 5000),
            (LIBC, 1500),
        ],
        prepare: || drop(fs::remove_file(CERTIFICATE)),
        least: 550,
        early: 20,
        ..PLAIN
    },
];

const SQL: &str = "create table t(a, b); with recursive c(n) as (select 1 union all select n + 1 \
    from c where n < 40) insert into t select n, hex(n) from c; create index i on t(b, a); create \
    table u as select sum(a) as s, group_concat(b) as g from t where b like '3%' group by a % 7; \
    update t set b = upper(b) || printf('%08.3f', a / 3.0) where a in (select s from u); delete \
    from t where a between 5 and 9; vacuum;";

const CERTIFICATE: &str = "/var/tmp/agreement/certificate";

pub(super) const INTERPRETERS: &[Program] = &[
    Program {
        words: &["/usr/bin/perl", "-Mfeature=current_sub", "-e", PERL],
        files: &[("/usr/bin/perl", 5000), (LIBC, 1000)],
        least: 840,
        early: 10,
        ..PLAIN
    },
    Program {
        words: &["/usr/bin/python3", "-S", "-s", "-B", "-"],
        input: PYTHON,
        files: &[("/usr/bin/python3", 6000), (LIBC, 1000)],
        prepare: run_python_once,
        least: 590,
        early: 10,
        ..PLAIN
    },
];

/// The first run after a boot does some things that later ones do not.
fn run_python_once() {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-S", "-s", "-B", "-c", PYTHON]);
    assert!(python.status().expect("it is there").success());
}

const PERL: &str = "my %h; for my $i (1..300) { push @{$h{$i % 7}}, join(',', map { $_ * $i } \
    1..9) =~ s/3/x/gr; } my @s = sort { $a <=> $b } map { length } @{$h{3}}; my $t = \
    sprintf '%s %5.2f %x', 'a' x 9, 3.25, 77; local $_ = $t; tr/a-c/A-C/; my @f = split /\\s+/; \
    my $r = eval { die { code => 5 } } // $@->{code}; my $p = pack 'NnCa*', 1, 2, 3, $t; \
    my @u = unpack 'NnC', $p; my $c = sub { my $n = shift; $n < 2 ? 1 : $n * __SUB__->($n - 1) };";

const PYTHON: &str = r#"
class A(dict):
    def __missing__(self, key):
        return key * 2

a = A((str(n), n ** 3) for n in range(99))
b = sorted(a.items(), key=lambda kv: (kv[1] % 7, kv[0]))
c = "%s %5.2f %r" % (b[3], 3.25, {1, 2, 3})
d = {n: [m for m in range(n) if m & 1] for n in range(20)}

def g(n):
    while n:
        n -= 1
        yield n

e = sum(g(50)) + len(a["zz".upper()])
try:
    {}["x"]
except KeyError as error:
    f = error.args
h = compile("x = [1, 2, *range(3)]; y = lambda z=4, *w: z", "s", "exec")
i = int("123456789" * 9) // 7 ** 33
j = bytes(range(65, 90)).decode("latin-1").split("K")
k = f"{c!r:>50}{i:,}".encode().hex()
"#;

pub(super) const SERVERS: &[Program] = &[
    Program {
        words: &[
            "/usr/bin/redis-server",
            "--port",
            "0",
            "--appendonly",
            "yes",
            "--dir",
            REDIS,
            "--logfile",
            "/var/tmp/agreement/redis/log",
        ],
        files: &[("/usr/bin/redis-server", 6000), (LIBC, 1000)],
        prepare: commands_of_redis,
        least: 320,
        early: 20,
        ..PLAIN
    },
    Program {
        words: &[
            "/usr/lib/postgresql/17/bin/postgres",
            "--single",
            "-D",
            POSTGRES,
            "-c",
            "fsync=off",
            "template1",
        ],
        input: QUERIES,
        // It refuses root.
        user: "postgres",
        // It counts what it does whenever some time has gone by.
        is_steadied: true,
        files: &[("/usr/lib/postgresql/17/bin/postgres", 6500)],
        prepare: cluster_of_postgres,
        least: 820,
        ..PLAIN
    },
];

const REDIS: &str = "/var/tmp/agreement/redis";

/// A log of commands for redis, which it runs when it starts; what is no command ends it.
fn commands_of_redis() {
    let _ = fs::remove_dir_all(REDIS);
    fs::create_dir(REDIS).expect("it is ours");
    let mut log = String::new();
    for command in COMMANDS.lines() {
        let words: Vec<&str> = command.split_whitespace().collect();
        log += &format!("*{}\r\n", words.len());
        log.extend(
            words
                .iter()
                .map(|word| format!("${}\r\n{word}\r\n", word.len())),
        );
    }
    fs::write(format!("{REDIS}/appendonly.aof"), log + "the end\r\n").expect("it is new");
}

const COMMANDS: &str = "select 0
set a 1
incr a
append a 23
rpush l 1 2 3 4 5
lpush l x
lrem l 1 3
sort l alpha store m
hset h f 1 g 2
hincrby h f 5
sadd s 1 2 3
sadd t 2 3 x
sinterstore u s t
zadd z 1 a 2 b 3 c
zincrby z 4 a
zunionstore y 2 z z
setbit b 77 1
bitop not c b
pfadd p a b c
xadd x 1-1 f v
xtrim x maxlen 1
geoadd g 13.3 38.1 here
expire a 1000
rename l n
getrange a 0 1
copy h i
del m
flushdb";

const POSTGRES: &str = "/var/tmp/agreement/postgres";

/// A copy of the cluster that Debian's package has made.
fn cluster_of_postgres() {
    let _ = fs::remove_dir_all(POSTGRES);
    let mut copy = Command::new("cp");
    copy.args(["-a", "/var/lib/postgresql/17/main", POSTGRES]);
    assert!(copy.status().expect("cp is there").success());
    // Debian keeps it in /etc; what holds without it is good here.
    fs::write(format!("{POSTGRES}/postgresql.conf"), "").expect("it is ours");
}

const QUERIES: &str = r#"create table t(a int primary key, b text);
insert into t select n, md5(n::text) from generate_series(1, 200) n;
create view v as select b, count(*) from t group by b order by 2;
select * from v join t using (b) where a % 3 = 1 and b ~ '^[a-f]' limit 5;
update t set b = upper(substr(b, 2)) where a between 10 and 20;
with recursive r(n) as (values (1) union all select n + 1 from r where n < 9) select sum(n), string_agg(to_char(n, '999D9'), ',') from r;
select x.a, lag(x.a) over (order by x.b) from t x left join t y on x.a = y.a + 1;
do 'begin for i in 1..3 loop perform i; end loop; end';
select '{"a": [1, 2]}'::jsonb -> 'a', now() > '2020-01-01', 1.5::numeric ^ 7;
create index i on t(b);
vacuum t;
analyze t;
"#;

/// What it has read is kept in files, from which the next run takes it.
fn forget_packages() {
    for name in ["pkgcache.bin", "srcpkgcache.bin"] {
        let _ = fs::remove_file(format!("/var/cache/apt/{name}"));
    }
}

pub(super) const CPP_AND_RUST: &[Program] = &[
    Program {
        words: &["/usr/bin/apt-mark", "showhold"],
        // How often it tells its progress.
        is_steadied: true,
        prepare: forget_packages,
        files: &[
            ("/usr/lib/x86_64-linux-gnu/libapt-pkg.so.7.0", 4000),
            (LIBSTDCPP, 3000),
            (LIBC, 1500),
        ],
        least: 310,
        early: 20,
        ..PLAIN
    },
    Program {
        words: &["/usr/bin/gdb", "-nx", "-batch", "-ex", "set var $x = 6 * 7"],
        files: &[("/usr/bin/gdb", 5000), (LIBSTDCPP, 1000)],
        least: 280,
        ..PLAIN
    },
    Program {
        words: &[
            "/usr/bin/sd",
            "(?i)(f[a-z]*|\\bs\\w+?)\\s+([^a-c]{2,9}|x)",
            "${2}-$1",
        ],
        input: SCRIPT,
        // Rust's maps have no order, on purpose.
        is_steadied: true,
        files: &[("/usr/bin/sd", 8000)],
        least: 730,
        ..PLAIN
    },
];

pub(super) const GO: &[Program] = &[Program {
    words: &["/usr/bin/shfmt", "-i", "2", "-s"],
    input: SCRIPT,
    is_go: true,
    files: &[("/usr/bin/shfmt", 7000)],
    least: 600,
    ..PLAIN
}];

/// Something to read.
const SCRIPT: &str = r#"#!/bin/bash
# A bit of everything.
set -eu; shopt -s extglob
function first() { local a=$1 b="${2:-x${a%%.*}}"; echo "$a ${#b}" >&2 | tr a-z A-Z; }
second () {
for i in 1 2 {3..5} "$@"; do case "$i" in 1|2) continue;; @(3|4)*) break 1 ;; *) : ;; esac; done
while read -r line <&3; do [[ $line =~ ^a+ && -n $line ]] || { shift; continue; }; done 3< <(ls)
until false; do if test -f x -a "$((i++ + 2 ** 3 % 5))" -gt 1; then return; elif ! true; then :; else exit; fi; done
}
declare -A map=([a]=1 [b]="two words"); list=(1 2 "${map[@]:0:1}" $(first "`second`"))
cat <<-END && first a.b &
	some $text ${list[1]/x/y} $(( 1 ? 2 : 3 ))
	END
(cd /tmp; exec >out 2>&1; trap 'rm -f "$x"' EXIT) || let x=1+2 y=x*3
select word in one two; do coproc cat; time first; done
((x = 1, y <<= 2)); for ((i = 0; i < 9; i++)); do printf '%s
' $'a	b' "${!list[@]}" "${x^^}" "${y@Q}"; done
"#;
