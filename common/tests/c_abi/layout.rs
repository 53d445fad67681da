// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What rustc says about every struct, field and constant of the ABI.

use super::write::{c_constant, c_enumerator, snake};
use nsprobe_common::abi::*;
use nsprobe_common::program::{
    Context, Flaw, Operation, Register, Step, BYTES_MAX, DATA_MAX, FIELDS_MAX, KEPT_MAX,
    KEY_WORDS_MAX, OUTPUT_WORDS_MAX, SLOTS, STEPS_MAX,
};
use nsprobe_common::record::*;
use nsprobe_common::ring::*;
use nsprobe_common::task::*;
use nsprobe_common::unwind::{Base, Defect, Rule, Saved, BLOCK_BITS, RULES_MAX};
use std::mem::{offset_of, size_of};

/// A struct.
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    pub(crate) fields: Vec<Place>,
}

/// A struct's field.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

fn bytes_of<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layouts {
    ($($name:ident { $($field:ident),+ $(,)? })+) => {
        vec![$(Layout {
            name: stringify!($name),
            bytes: size_of::<$name>(),
            fields: vec![$(Place {
                name: stringify!($field),
                offset: offset_of!($name, $field),
                bytes: bytes_of(|s: &$name| &s.$field),
            }),+],
        }),+]
    };
}

macro_rules! values {
    ($($name:ident $(:: $variant:ident)?),+ $(,)?) => {
        vec![$((
            concat!(stringify!($name) $(, "::", stringify!($variant))?),
            Value::from($name $(:: $variant as u32)?),
        )),+]
    };
}

/// A constant's value.
pub(crate) enum Value {
    Number(u64),
    Text(&'static str),
}

macro_rules! number {
    ($($type:ty)+) => { $(impl From<$type> for Value {
        fn from(value: $type) -> Value {
            Value::Number(value as u64)
        }
    })+ };
}
number!(u8 u16 u32 u64 usize);

impl From<&'static str> for Value {
    fn from(value: &'static str) -> Value {
        Value::Text(value)
    }
}

/// Every struct.
pub(crate) fn structs() -> Vec<Layout> {
    layouts! {
        Info { size, flags, version, version_min, features, sessions, probes, rings, page_size,
            release }
        Setup { size, flags, ring_bytes, watermark_bytes, rings, reserved, mmap_stride }
        Filter { size, flags, pids, pid_count, pidns_pid, pidns_id, tids, tid_count,
            uid, comm, cgroup_id, cgroup_fd, reserved2, pidns_list, pidns_count,
            program_fd }
        Probe { fd, kind, flags, max_frames, offset, report_offset, semaphore, id, sink,
            entry_program, return_program, table, span, max_writes, every, rate,
            burst, runaway, call, refused, error }
        Attach { size, flags, probes, count, probe_size, failed, reason }
        Detach { size, flags, ids, count, reserved }
        Counters { size, flags, probe, cpu, hits, recorded, filtered, lost_full, rejected,
            stacks_cut, undecided, aggregated, turned_away, written, write_failed,
            write_withheld, skipped, limited, off, too_deep, frozen,
            missed, in_kernel, idle, kernel_threads, by_clock,
            processes_failed, evicted,
            below, below_ns, no_row, unfinished }
        Freeze { size, flags, frozen, reserved }
        File { size, flags, fd, remote, identity }
        PidNamespace { pid, reserved, id }
        Unwind { size, flags, fd, block_count, first, blocks, rows, rules, row_count, rule_count,
            object, defect, bytes }
        StackCopy { header, time_ns, probe, tid, rip, rsp, rbp, flags, mappings, words, reserved }
        LateStack { header, time_ns, hit_ns, probe, tid, stack, words, stack_end, pages }
        Stack { size, flags, id, words, frames, used, reserved, full_pidns }
        DropSpans { size, flags, table, count, owners, dropped }
        Hold { size, flags, limit_ms, reserved, held, overdue, interrupted, not_held, longest_ns }
        Held { size, flags, release, id, pid, reserved }
        SpanOwner { word, latest_ns }
        CodeMapping { start, bytes, delta, object, unmapped }
        Rule { base, saved, more, offset, saved_at, extra }
        Object { size, flags, id, fd, identity }
        Program { size, flags, steps, data, step_count, data_bytes, id, flaw, flaw_step, reserved }
        Table { size, flags, kind, rows, key_words, max_frames, scale, log_bits, low, step, buckets,
            id, row_bytes, capacity }
        Rows { size, flags, table, next, buffer, buffer_bytes, count, turned_away, replaced,
            turned_away_pidns }
        Row { count, sum, least, greatest, time_ns, key_words, stack_words, stack_capacity,
            stack_end, buckets, tid }
        Step { operation, to, a, b, small, large }
        ObjectIdentity { dev, ino, generation, build_id_len, file_bytes, ctime_ns, build_id, pid,
            reserved }
        Header { word, kind, reserved }
        Hit { header, time_ns, probe, sequence, cpu, words, stack_end, flags, field_words, pid, tid,
            ns_pid, ns_tid, pidns_id, pidns_inum, stack, comm }
        ObjectRecord { header, time_ns, id, reserved, identity }
        Lost { header, time_ns, count, first_ns }
        WriteRecord { header, time_ns, probe, sequence, pid, tid, what, done, bytes, reserved, cpu,
            place, before, after }
        OffRecord { header, time_ns, probe, limit }
        Tasks { size, flags, args_bytes, cpu_rows, missing, reserved }
        TaskDump { size, flags, next, count, buffer, buffer_bytes, written }
        CpuTimes { size, flags, next, count, buffer, buffer_bytes, reserved, time_ns,
            turned_away_ns }
        CpuTime { cgroup, pidns_id, pidns_inum, cpu, runtime_ns, switches }
        TaskCount { seen, recorded, filtered, lost }
        TaskCounters { size, flags, cpu, reserved, kinds }
        TaskRecord { header, time_ns, start_ns, cpu_ns, user_ns, system_ns, cgroup, what, levels,
            parent_levels, flags, cpu, state, value, object, uid, priority, namespaces, comm,
            args_bytes, reserved }
        TaskLevel { id, inum, tid, pid, ppid }
        SwitchRecord { header, time_ns, prev_tid, next_tid, prev_state, cpu, prev_priority,
            next_priority, flags }
        WakeRecord { header, time_ns, tid, by_tid, cpu, target_cpu, what, priority, reserved }
        MappingsRecord { header, time_ns, start_ns, pid, mappings, left_out, reserved }
        ConsumerPage { position }
        ProducerPage { position, lost, data_bytes, overwritten }
    }
}

/// Every constant, and every enum's variant as `Enum::Variant`.
pub(crate) fn constants() -> Vec<(&'static str, Value)> {
    values![
        Version::V1,
        Version::V2,
        Version::V3,
        Version::V4,
        Version::V5,
        Version::V6,
        TASK_LEVELS_MAX,
        TASK_ARGS_MAX,
        TASK_BYTES_MAX,
        TASK_ALIVE,
        TASK_FORK,
        TASK_EXEC,
        TASK_EXIT,
        TASK_NAME,
        TASK_NAMESPACES,
        TASK_CGROUP,
        TASK_KERNEL,
        TASK_LAST,
        TASK_ARGS_CUT,
        TASK_ARGS_ABSENT,
        TASK_ZOMBIE,
        TASK_BARE,
        TASK_ENDING,
        NAMESPACE_MOUNT,
        NAMESPACE_UTS,
        NAMESPACE_IPC,
        NAMESPACE_NETWORK,
        NAMESPACE_USER,
        NAMESPACE_CGROUP,
        NAMESPACE_TIME,
        NAMESPACE_PID_CHILDREN,
        NAMESPACES,
        SWITCH_FROM_IDLE,
        SWITCH_TO_IDLE,
        SWITCH_PREEMPTED,
        WAKE_BEGUN,
        WAKE_DONE,
        WAKE_NEW,
        TASKS_LIFE,
        TASKS_NAMES,
        TASKS_MOVES,
        TASKS_SWITCHES,
        TASKS_WAKEUPS,
        TASKS_CPU,
        TASKS_UNFILTERED,
        CPU_ROWS_MAX,
        DUMP_MAPPINGS,
        DUMP_ARGS,
        DUMP_BYTES_MIN,
        TASK_KINDS,
        TASK_KIND_FORK,
        TASK_KIND_EXEC,
        TASK_KIND_EXIT,
        TASK_KIND_NAME,
        TASK_KIND_NAMESPACES,
        TASK_KIND_CGROUP,
        TASK_KIND_SWITCH,
        TASK_KIND_WAKE,
        NR_TASKS,
        NR_TASK_DUMP,
        NR_CPU_TIMES,
        NR_TASK_COUNTERS,
        NR_DROP_SPANS,
        DROP_SPANS,
        NR_HOLD,
        NR_HELD,
        HOLD,
        HELD,
        HOLD_SET,
        HOLD_MS_MAX,
        HELD_MAX,
        HOLD_OVERDUE_MAX,
        SPAN_OWNERS_MAX,
        TASKS,
        TASK_DUMP,
        CPU_TIMES,
        TASK_COUNTERS,
        FEATURE_TASKS,
        FEATURE_EXITS,
        FEATURE_SAMPLES,
        FEATURE_SPANS,
        FEATURE_PARTIAL,
        FEATURE_REMOTE,
        FEATURE_WAITS,
        FEATURE_GO,
        FEATURE_HOLD,
        FEATURE_TAKE,
        ROWS_TAKE,
        ROWS_TAKE_MAX,
        KIND_TASK,
        KIND_SWITCH,
        KIND_WAKE,
        KIND_MAPPINGS,
        DEVICE,
        TYPE,
        NR_INFO,
        NR_SETUP,
        NR_FILTER,
        NR_ATTACH,
        NR_DETACH,
        NR_COUNTERS,
        NR_OBJECT,
        NR_PROGRAM,
        NR_TABLE,
        NR_ROWS,
        NR_FREEZE,
        NR_FILE,
        NR_UNWIND,
        NR_STACK,
        INFO,
        SETUP,
        FILTER,
        ATTACH,
        DETACH,
        COUNTERS,
        OBJECT,
        PROGRAM,
        TABLE,
        ROWS,
        FREEZE,
        FILE,
        UNWIND,
        STACK,
        FEATURE_ENTRY,
        FEATURE_STACK_FP,
        FEATURE_FILTER_PID,
        FEATURE_OBJECT_FD,
        FEATURE_RETURN,
        FEATURE_PROGRAM,
        FEATURE_SINKS,
        FEATURE_SEMAPHORE,
        FEATURE_FILTERS,
        FEATURE_MODIFY,
        FEATURE_LIMITS,
        FEATURE_FLIGHT,
        FEATURE_FOLLOW,
        FEATURE_UNWIND,
        FEATURE_STACKS,
        FEATURE_DROP,
        RING_BYTES_MIN,
        RING_BYTES_MAX,
        RING_BYTES_TOTAL_MAX,
        PROBES_MAX,
        ATTACH_MAX,
        FRAMES_MAX,
        FILTER_PIDS_MAX,
        FILTER_CHILDREN_MAX,
        FILTER_PIDNS_MAX,
        OBJECTS_MAX,
        BUILD_ID_MAX,
        SETUP_MODIFY,
        SETUP_OVERWRITE,
        FREEZE_NOW,
        FREEZE_END,
        FILTER_PIDS,
        FILTER_PIDNS,
        FILTER_SELF,
        FILTER_TIDS,
        FILTER_UID,
        FILTER_COMM,
        FILTER_CGROUP,
        FILTER_CHILDREN,
        FILTER_PIDNS_LIST,
        FILTER_NOT_PROGRAM,
        PROBE_ENTRY,
        PROBE_RETURN,
        PROBE_CALL,
        PROBE_BEGIN,
        PROBE_END,
        PROBE_LEAVE,
        PROBE_SAMPLE,
        PROBE_WAIT,
        PROBE_WAKE,
        PROBE_LOCKS,
        PROBE_GO,
        WAITS_MAX,
        WAITS_A_SECOND,
        SAMPLE_HZ_MAX,
        KERNEL_FRAMES_MAX,
        CALLS_MAX,
        PROBE_STACK,
        PROBE_AT_ENTRY,
        PROBE_RETURN_ONLY,
        PROBE_FREEZES,
        SINK_RECORD,
        SINK_COUNT,
        SINK_TABLE,
        SINK_SPAN,
        PROBE_BYTES_V1,
        ATTACH_PARTIAL,
        PROGRAMS_MAX,
        TABLES_MAX,
        ROWS_MAX,
        TABLE_BYTES_MAX,
        TABLE_SUMS,
        TABLE_HISTOGRAM,
        TABLE_SPANS,
        SCALE_LOG,
        SCALE_LINEAR,
        Refusal::None,
        Refusal::NoSetup,
        Refusal::UnknownValue,
        Refusal::BadFd,
        Refusal::NotRegular,
        Refusal::OutsideFile,
        Refusal::TooMany,
        Refusal::Kernel,
        Refusal::NoMemory,
        Refusal::NoSuchId,
        Refusal::MayNotWrite,
        Refusal::Mismatch,
        Refusal::BadSemaphore,
        Refusal::SemaphoreConflict,
        Refusal::NotAtEntry,
        Refusal::NoWriteLimit,
        Refusal::BadLimit,
        Refusal::MayNotSeeKernel,
        Refusal::SystemCall,
        Refusal::Twice,
        Refusal::BadFrequency,
        Refusal::NeedsAnswer,
        DETACH_ALL,
        COUNTERS_BYTES_V1,
        FILTER_BYTES_V1,
        CPU_ALL,
        OBJECT_FD,
        OBJECT_ROOT,
        OBJECT_DROP,
        BUSY,
        DISCARD,
        LENGTH,
        KIND_HIT,
        KIND_OBJECT,
        KIND_LOST,
        KIND_WRITE,
        KIND_OFF,
        WRITE_REGISTER,
        WRITE_MEMORY,
        WRITE_RETURN,
        WORDS_MAX,
        RECORD_BYTES_MAX,
        HIT_RETURN,
        HIT_KERNEL,
        ELAPSED_UNKNOWN,
        StackEnd::None,
        StackEnd::Outermost,
        StackEnd::Limit,
        StackEnd::Fault,
        StackEnd::BadFramePointer,
        StackEnd::NotCode,
        StackEnd::Unsupported,
        StackEnd::BadRow,
        StackEnd::NoRow,
        StackEnd::RowsNotReady,
        StackEnd::Copied,
        StackEnd::Late,
        StackEnd::CopyEnd,
        COPY_BEHIND_CALL,
        COPY_WITHOUT_RBP,
        COPY_MAPPINGS_CUT,
        KIND_STACK_COPY,
        KIND_LATE_STACK,
        KERNEL_WORDS_MAX,
        PROBE_STACK_IDS,
        PROBE_KERNEL_STACK,
        PROBE_LATE,
        PROBE_MAY_HANG,
        STACK_TABLE_WORDS,
        LATE_MAX,
        UNWIND_VDSO,
        UNWIND_DROP,
        HIT_BYTES_MAX,
        PROBE_COPIES,
        STACK_COPY_WORDS_MAX,
        CODE_MAPPINGS_MAX,
        Method::Registers,
        Method::StackTop,
        Method::FramePointer,
        Method::Row,
        Method::Signal,
        Unmapped::Anonymous,
        Unmapped::TableFull,
        Unmapped::NoMapping,
        Unmapped::HugeOffset,
        Unmapped::Kernel,
        OFFSET_BITS,
        SLOTS,
        STEPS_MAX,
        DATA_MAX,
        FIELDS_MAX,
        BYTES_MAX,
        OUTPUT_WORDS_MAX,
        Operation::Constant,
        Operation::Register,
        Operation::Context,
        Operation::Kept,
        Operation::Keep,
        Operation::Load,
        Operation::LoadSigned,
        Operation::FromProbe,
        Operation::Add,
        Operation::Subtract,
        Operation::Multiply,
        Operation::Divide,
        Operation::Modulo,
        Operation::And,
        Operation::Or,
        Operation::ExclusiveOr,
        Operation::ShiftLeft,
        Operation::ShiftRight,
        Operation::ShiftRightSigned,
        Operation::Not,
        Operation::ZeroExtend,
        Operation::SignExtend,
        Operation::DivideSigned,
        Operation::ModuloSigned,
        Operation::Equal,
        Operation::Below,
        Operation::BelowOrEqual,
        Operation::Less,
        Operation::LessOrEqual,
        Operation::IsZero,
        Operation::StringEqual,
        Operation::StringBegins,
        Operation::Either,
        Operation::Both,
        Operation::SliceEqual,
        Operation::SliceBegins,
        Operation::Require,
        Operation::Field,
        Operation::FieldString,
        Operation::FieldBytes,
        Operation::FieldSlice,
        Operation::Key,
        Operation::KeyString,
        Operation::Value,
        Operation::EndSpan,
        Operation::SpanValue,
        Operation::KeySlice,
        Operation::SetRegister,
        Operation::Store,
        Operation::Return,
        Register::Rax,
        Register::Rdx,
        Register::Rcx,
        Register::Rbx,
        Register::Rsi,
        Register::Rdi,
        Register::Rbp,
        Register::Rsp,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
        Register::Rip,
        Register::Flags,
        Context::Pid,
        Context::Tid,
        Context::NsPid,
        Context::NsTid,
        Context::PidNamespace,
        Context::Cpu,
        Context::Time,
        Context::Elapsed,
        Context::Uid,
        Context::CommLow,
        Context::CommHigh,
        Context::Probe,
        Context::PidNamespaceId,
        Context::Random,
        Context::Gid,
        Context::WaitKind,
        Context::WaitCall,
        Context::WaitFile,
        Context::WaitedForCpu,
        Context::WokenAt,
        Context::WokenBy,
        Context::Lock,
        Context::LockHolder,
        KEPT_MAX,
        KEY_WORDS_MAX,
        LOG_BITS_MAX,
        LINEAR_MAX,
        Flaw::TooLong,
        Flaw::Unknown,
        Flaw::NoSlot,
        Flaw::Unwritten,
        Flaw::BadSize,
        Flaw::TooMuchOutput,
        Flaw::Repeated,
        Flaw::NotWritable,
        UNWIND_NONE,
        COPY_BYTES_PER_SECOND,
        UNWIND_BLOCKS_MAX,
        UNWIND_ROWS_MAX,
        UNWIND_RULES_MAX,
        UNWIND_BYTES_MAX,
        BLOCK_BITS,
        RULES_MAX,
        Base::Unknown,
        Base::Outermost,
        Base::Unsupported,
        Base::Rsp,
        Base::Rbp,
        Base::AtRsp,
        Base::AtRbp,
        Base::Register,
        Base::Linkage,
        Base::Signal,
        Base::OtherStack,
        Base::Goroutine,
        Base::GrowsStack,
        Base::Injected,
        Base::Scheduler,
        Saved::Same,
        Saved::AtFrame,
        Saved::AtRbp,
        Saved::Lost,
        Defect::Empty,
        Defect::TooManyRules,
        Defect::TooFar,
        Defect::Blocks,
        Defect::NoFirstRow,
        Defect::Unsorted,
        Defect::NoRule,
        Defect::BadRule,
    ]
}

/// What a C compiler must find true.
pub(crate) fn assertions() -> Vec<String> {
    let mut lines = Vec::new();
    let mut equal = |left: String, right: u64| {
        lines.push(format!("_Static_assert({left} == {right}ULL, {left:?});"));
    };
    for layout in structs() {
        let c = format!("struct nsprobe_{}", snake(layout.name));
        equal(format!("sizeof({c})"), layout.bytes as u64);
        for place in &layout.fields {
            let member = format!("(({c} *)0)->{}", place.name);
            equal(
                format!("offsetof({c}, {})", place.name),
                place.offset as u64,
            );
            equal(format!("sizeof({member})"), place.bytes as u64);
        }
    }
    for (name, value) in constants() {
        let c = match name.split_once("::") {
            Some((of, variant)) => c_enumerator(of, variant),
            None => c_constant(name),
        };
        match value {
            Value::Number(number) => equal(c, number),
            Value::Text(text) => equal(format!("__builtin_strcmp({c}, {text:?})"), 0),
        }
    }
    for frame in [
        Frame::Object {
            id: 0xabcde,
            offset: 0x12_3456_789a,
            method: 2,
        },
        Frame::Address {
            address: 1,
            why: 3,
            method: 1,
        },
    ] {
        let (words, _) = frame.encode();
        let (id, offset, method) = match frame {
            Frame::Object { id, offset, method } => (id, offset, method),
            Frame::Address { why, method, .. } => (0, why as u64, method),
        };
        equal(format!("NSPROBE_FRAME_OBJECT({}ULL)", words[0]), id as u64);
        equal(format!("NSPROBE_FRAME_OFFSET({}ULL)", words[0]), offset);
        equal(
            format!("NSPROBE_FRAME_METHOD({}ULL)", words[0]),
            method as u64,
        );
    }
    lines
}
