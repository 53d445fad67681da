// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens into a spec. Operators bind as they do in C.

use super::lexer::{number, tokens, Token};
use super::{
    Binary, CastType, Expression, Field, Format, Kind, Place, Span, Spec, SpecError, Unary,
    TEXT_BYTES,
};
use nsprobe_common::program::{Context, Register, BYTES_MAX};

/// Deepest nesting of an expression.
const DEPTH_MAX: u32 = 48;

type Result<T> = std::result::Result<T, SpecError>;

/// Reads what stands behind `BINARY:`.
pub(super) fn spec(text: &str) -> Result<Spec> {
    let (place_span, place_text, after) = place_text(text)?;
    let (place_text, at_return) = match place_text.strip_suffix("%return") {
        Some(rest) => (rest.to_owned(), true),
        None => (place_text, false),
    };
    let place = place(&place_text, &place_span)?;
    let mut parser = Parser::new(text, after)?;
    let at_return = at_return || parser.take_percent("return");
    let fields = match parser.take("(") {
        true => parser.fields(Some(")"))?,
        false => Vec::new(),
    };
    let condition = match parser.take_name("if") {
        true => Some(parser.expression()?),
        false => None,
    };
    parser.end("here the spec should end, or `if CONDITION` follow")?;
    Ok(Spec {
        place,
        place_span,
        at_return,
        fields,
        condition,
    })
}

/// Reads a list of fields.
pub(super) fn fields(text: &str) -> Result<Vec<Field>> {
    let mut parser = Parser::new(text, 0)?;
    let fields = parser.fields(None)?;
    parser.end("here a comma should stand")?;
    Ok(fields)
}

/// The place, its text without quotes, and where what follows begins. It ends at
/// the first bracket or blank, unless it stands in quotes.
fn place_text(text: &str) -> Result<(Span, String, usize)> {
    let start = text.len() - text.trim_start().len();
    let rest = text.get(start..).unwrap_or("");
    for quote in ['"', '`'] {
        if let Some(inner) = rest.strip_prefix(quote) {
            let Some(end) = inner.find(quote) else {
                let message = "the closing quote is missing";
                return Err(SpecError::new(start..text.len(), message));
            };
            let name = inner.get(..end).unwrap_or("").to_owned();
            let after = start + 1 + end + 1;
            return Ok((start..after, name, after));
        }
    }
    // `operator()` and the like have brackets in their name.
    let skip = match rest.find("operator()") {
        Some(at) => at + "operator()".len(),
        None => 0,
    };
    let tail = rest.get(skip..).unwrap_or("");
    let end = skip
        + tail
            .find(|c: char| c == '(' || c.is_whitespace())
            .unwrap_or(tail.len());
    let name = rest.get(..end).unwrap_or("").to_owned();
    if name.is_empty() {
        return Err(SpecError::new(
            start..start + 1,
            "the function is missing here",
        ));
    }
    Ok((start..start + end, name, start + end))
}

fn place(text: &str, span: &Span) -> Result<Place> {
    if let Some(offset) = text.strip_prefix("0x").and(number(text)) {
        return Ok(Place::FileOffset(offset));
    }
    if let Some((before, after)) = split_colon(text) {
        if before.is_empty() || after.is_empty() {
            return Err(SpecError::new(
                span.clone(),
                "this is neither FILE:LINE nor PROVIDER:NAME",
            ));
        }
        if after.bytes().all(|byte| byte.is_ascii_digit()) {
            return match after.parse() {
                Ok(line) if line > 0 => Ok(Place::Line {
                    file: before.to_owned(),
                    line,
                }),
                _ => Err(SpecError::new(span.clone(), "no file has such a line")),
            };
        }
        return Ok(Place::Usdt {
            provider: before.to_owned(),
            name: after.to_owned(),
        });
    }
    // `operator+` has no number behind it.
    let (name, offset) = match text.rsplit_once('+') {
        Some((name, digits))
            if !name.is_empty() && digits.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            match number(digits) {
                Some(offset) => (name, offset),
                None => {
                    return Err(SpecError::new(
                        span.clone(),
                        "what stands behind the + is not a number of bytes",
                    ))
                }
            }
        }
        _ => (text, 0),
    };
    Ok(Place::Functions {
        name: name.to_owned(),
        offset,
    })
}

/// Divides at a colon that is not part of a `::`.
fn split_colon(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let is_colon = |at: usize| bytes.get(at) == Some(&b':');
    let at = (0..bytes.len()).find(|&at| {
        is_colon(at) && !is_colon(at + 1) && !at.checked_sub(1).is_some_and(is_colon)
    })?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, Span)>,
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, from: usize) -> Result<Parser<'a>> {
        Ok(Parser {
            text,
            tokens: tokens(text, from)?,
            at: 0,
            depth: 0,
        })
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn is(&self, mark: &str) -> bool {
        matches!(self.peek(), Some(Token::Mark(found)) if *found == mark)
    }

    /// Where the next token is, or the end of the text.
    fn span(&self) -> Span {
        let end = self.text.len();
        let token = self.tokens.get(self.at);
        token.map_or(end..end, |(_, span)| span.clone())
    }

    /// Where the token before is.
    fn last_end(&self) -> usize {
        let last = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        last.map_or(0, |(_, span)| span.end)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek()?.clone();
        self.at += 1;
        Some(token)
    }

    fn take(&mut self, mark: &str) -> bool {
        let found = self.is(mark);
        self.at += usize::from(found);
        found
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(found)) if found == name);
        self.at += usize::from(found);
        found
    }

    fn take_percent(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Percent(found)) if found == name);
        self.at += usize::from(found);
        found
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(SpecError::new(self.span(), message))
    }

    fn expect(&mut self, mark: &str, message: &str) -> Result<()> {
        match self.take(mark) {
            true => Ok(()),
            false => self.error(message),
        }
    }

    fn end(&self, message: &str) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.error(message),
        }
    }

    fn fields(&mut self, close: Option<&str>) -> Result<Vec<Field>> {
        let mut fields = Vec::new();
        if close.is_some_and(|close| self.take(close)) {
            return Ok(fields);
        }
        loop {
            fields.push(self.field()?);
            if self.take(",") {
                continue;
            }
            if let Some(close) = close {
                self.expect(close, "here a comma or the closing bracket should stand")?;
            }
            return Ok(fields);
        }
    }

    fn field(&mut self) -> Result<Field> {
        let start = self.span().start;
        let mut name = None;
        if let (Some(Token::Name(found)), Some((Token::Mark("="), _))) =
            (self.peek(), self.tokens.get(self.at + 1))
        {
            name = Some(found.clone());
            self.at += 2;
        }
        let value = self.expression()?;
        let written = self.text.get(value.span.clone()).unwrap_or("").to_owned();
        let format = match self.take(":") {
            true => Some(self.format()?),
            false => None,
        };
        Ok(Field {
            name: name.unwrap_or(written),
            value,
            format,
            span: start..self.last_end(),
        })
    }

    fn format(&mut self) -> Result<Format> {
        let span = self.span();
        let Some(Token::Name(name)) = self.next() else {
            self.at = self.at.saturating_sub(1);
            return self.error(FORMATS);
        };
        let count = match self.take("[") {
            true => Some(self.count()?),
            false => None,
        };
        let format = match (name.as_str(), count) {
            ("string", count) => Some(Format::Text {
                most: count.unwrap_or(TEXT_BYTES),
            }),
            ("bytes", Some(count)) => Some(Format::Bytes { count }),
            (_, Some(_)) => None,
            ("char", None) => Some(Format::Char),
            ("bool", None) => Some(Format::Bool),
            ("ptr" | "hex", None) => Some(Format::Hex { bytes: 8 }),
            (other, None) => sized(other),
        };
        format.ok_or_else(|| SpecError::new(span.start..self.last_end(), FORMATS))
    }

    /// What stands between square brackets behind a format.
    fn count(&mut self) -> Result<u16> {
        let span = self.span();
        match self.next() {
            Some(Token::Number(count)) if (1..=BYTES_MAX as u64).contains(&count) => {
                self.expect("]", "here the closing bracket should stand")?;
                Ok(count as u16)
            }
            _ => Err(SpecError::new(
                span,
                format!("here a number of bytes from 1 to {BYTES_MAX} should stand"),
            )),
        }
    }

    fn expression(&mut self) -> Result<Expression> {
        self.binary(0)
    }

    /// An expression of operators that bind at least so tightly.
    fn binary(&mut self, least: u8) -> Result<Expression> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.error("this is nested too deeply");
        }
        let mut left = self.unary()?;
        while let Some((operator, strength)) = self.operator() {
            if strength < least {
                break;
            }
            self.at += 1;
            let right = self.binary(strength + 1)?;
            let span = left.span.start..right.span.end;
            left = Expression {
                kind: Kind::Binary(operator, Box::new(left), Box::new(right)),
                span,
            };
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operator(&self) -> Option<(Binary, u8)> {
        let Some(Token::Mark(mark)) = self.peek() else {
            // `a %b` is a remainder when no register can stand there.
            return None;
        };
        Some(match *mark {
            "||" => (Binary::Or, 1),
            "&&" => (Binary::And, 2),
            "|" => (Binary::BitOr, 3),
            "^" => (Binary::BitXor, 4),
            "&" => (Binary::BitAnd, 5),
            "==" => (Binary::Equal, 6),
            "!=" => (Binary::NotEqual, 6),
            "~" => (Binary::Matches, 6),
            "<" => (Binary::Less, 7),
            "<=" => (Binary::LessOrEqual, 7),
            ">" => (Binary::Greater, 7),
            ">=" => (Binary::GreaterOrEqual, 7),
            "<<" => (Binary::ShiftLeft, 8),
            ">>" => (Binary::ShiftRight, 8),
            "+" => (Binary::Add, 9),
            "-" => (Binary::Subtract, 9),
            "*" => (Binary::Multiply, 10),
            "/" => (Binary::Divide, 10),
            "%" => (Binary::Modulo, 10),
            _ => return None,
        })
    }

    fn unary(&mut self) -> Result<Expression> {
        let start = self.span().start;
        if let Some(found) = self.perf_load(start)? {
            return Ok(found);
        }
        let operator = match self.peek() {
            Some(Token::Mark("-")) => Unary::Minus,
            Some(Token::Mark("~")) => Unary::BitNot,
            Some(Token::Mark("!")) => Unary::Not,
            Some(Token::Mark("*")) => Unary::Load,
            Some(Token::Mark("&")) => Unary::Address,
            _ => return self.postfix(),
        };
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.error("this is nested too deeply");
        }
        let of = self.unary()?;
        self.depth -= 1;
        let span = start..of.span.end;
        Ok(Expression {
            kind: Kind::Unary(operator, Box::new(of)),
            span,
        })
    }

    /// `+8(%sp)` or `-8(%bp)`: eight bytes at an address, as perf probe writes it.
    fn perf_load(&mut self, start: usize) -> Result<Option<Expression>> {
        let token = |ahead: usize| self.tokens.get(self.at + ahead).map(|(token, _)| token);
        let (
            Some(Token::Mark(sign @ ("+" | "-"))),
            Some(Token::Number(distance)),
            Some(Token::Mark("(")),
        ) = (token(0), token(1), token(2))
        else {
            return Ok(None);
        };
        let distance = match *sign {
            "-" => distance.wrapping_neg(),
            _ => *distance,
        };
        self.at += 3;
        let base = self.expression()?;
        self.expect(")", "here the closing bracket should stand")?;
        let span = start..self.last_end();
        let number = Expression {
            kind: Kind::Number(distance),
            span: span.clone(),
        };
        let address = Expression {
            kind: Kind::Binary(Binary::Add, Box::new(base), Box::new(number)),
            span: span.clone(),
        };
        Ok(Some(Expression {
            kind: Kind::Unary(Unary::Load, Box::new(address)),
            span,
        }))
    }

    fn postfix(&mut self) -> Result<Expression> {
        let mut expression = self.primary()?;
        loop {
            let start = expression.span.start;
            let kind = if self.take("[") {
                let index = self.expression()?;
                self.expect("]", "here the closing bracket should stand")?;
                Kind::Element {
                    of: Box::new(expression),
                    index: Box::new(index),
                }
            } else if self.is("->") || self.is(".") {
                self.at += 1;
                let span = self.span();
                let Some(Token::Name(name)) = self.next() else {
                    return Err(SpecError::new(
                        span,
                        "here the name of a member should stand",
                    ));
                };
                Kind::Member {
                    of: Box::new(expression),
                    name,
                }
            } else {
                return Ok(expression);
            };
            self.depth += 1;
            if self.depth > 10 * DEPTH_MAX {
                return self.error("this is nested too deeply");
            }
            expression = Expression {
                kind,
                span: start..self.last_end(),
            };
        }
    }

    fn primary(&mut self) -> Result<Expression> {
        let span = self.span();
        let kind = match self.next() {
            Some(Token::Number(value)) => Kind::Number(value),
            Some(Token::Text(bytes)) => Kind::Text(bytes),
            Some(Token::Name(name)) if name == "entry" && self.is("(") => {
                self.at += 1;
                let of = self.expression()?;
                self.expect(")", "here the closing bracket should stand")?;
                Kind::AtEntry(Box::new(of))
            }
            Some(Token::Name(name)) => match argument(&name) {
                Some(number) => Kind::Argument(number),
                None => Kind::Name(name),
            },
            Some(Token::Dollar(name)) => dollar(&name, &span)?,
            Some(Token::Percent(name)) => match register(&name) {
                Some((register, bytes)) => Kind::Register(register, bytes),
                None => return Err(SpecError::new(span, "there is no such register")),
            },
            Some(Token::Mark("(")) => return self.bracket(span.start),
            Some(_) => return Err(SpecError::new(span, "here a value should stand")),
            None => return self.error("here a value is missing"),
        };
        Ok(Expression {
            kind,
            span: span.start..self.last_end(),
        })
    }

    /// Behind an opening bracket: a type, or an expression.
    fn bracket(&mut self, start: usize) -> Result<Expression> {
        if let Some(cast) = self.cast_type() {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return self.error("this is nested too deeply");
            }
            let of = self.unary()?;
            self.depth -= 1;
            let span = start..of.span.end;
            return Ok(Expression {
                kind: Kind::Cast(cast, Box::new(of)),
                span,
            });
        }
        let inner = self.expression()?;
        self.expect(")", "here the closing bracket should stand")?;
        Ok(Expression {
            kind: inner.kind,
            span: start..self.last_end(),
        })
    }

    /// `TYPE *…)`, when that is what follows.
    fn cast_type(&mut self) -> Option<CastType> {
        let Some(Token::Name(name)) = self.peek() else {
            return None;
        };
        let (bytes, signed, is_char) = match name.as_str() {
            "char" => (1, false, true),
            name => match sized(name)? {
                Format::Decimal { bytes, signed } => (bytes, signed, false),
                _ => return None,
            },
        };
        let before = self.at;
        self.at += 1;
        let mut pointers = 0u8;
        while self.take("*") {
            pointers = pointers.saturating_add(1);
        }
        if !self.take(")") {
            self.at = before;
            return None;
        }
        Some(CastType {
            bytes,
            signed,
            is_char,
            pointers,
        })
    }
}

const FORMATS: &str = "this is no format: they are u8 to u64, s8 to s64, x8 to x64, hex, char, \
                       bool, ptr, string, string[N] and bytes[N]";

/// `u32`, `s8`, `x64`.
fn sized(name: &str) -> Option<Format> {
    let (kind, bits) = name.split_at_checked(1)?;
    let bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    Some(match kind {
        "u" => Format::Decimal {
            bytes,
            signed: false,
        },
        "s" => Format::Decimal {
            bytes,
            signed: true,
        },
        "x" => Format::Hex { bytes },
        _ => return None,
    })
}

/// `arg1`, as people of bpftrace write it; `arg0` is theirs too, and refused later.
fn argument(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("arg")?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

fn dollar(name: &str, span: &Span) -> Result<Kind> {
    let context = Kind::Context;
    Ok(match name {
        "pid" => context(Context::Pid),
        "tid" => context(Context::Tid),
        "nspid" => context(Context::NsPid),
        "nstid" => context(Context::NsTid),
        "pidns" => context(Context::PidNamespace),
        "uid" => context(Context::Uid),
        "cpu" => context(Context::Cpu),
        "time" => context(Context::Time),
        "elapsed" => context(Context::Elapsed),
        "probe" => context(Context::Probe),
        "comm" => Kind::Comm,
        "retval" => Kind::Returned,
        "params" => Kind::All { locals: false },
        "vars" => Kind::All { locals: true },
        name => {
            if let Some(number) = argument(name) {
                return Ok(Kind::Argument(number));
            }
            let word = name
                .strip_prefix("stack")
                .and_then(|word| word.parse().ok());
            match word {
                Some(word) => Kind::StackWord(word),
                None => {
                    return Err(SpecError::new(
                        span.clone(),
                        "there is no such value: $pid $tid $nspid $nstid $pidns $uid $cpu $comm \
                         $time $elapsed $retval $argN $stackN $params $vars $probe",
                    ))
                }
            }
        }
    })
}

/// A register by its name in AT&T syntax, and how many of its bytes are meant.
fn register(name: &str) -> Option<(Register, u8)> {
    use Register::*;
    let named = [
        (Rax, ["rax", "eax", "ax", "al"]),
        (Rdx, ["rdx", "edx", "dx", "dl"]),
        (Rcx, ["rcx", "ecx", "cx", "cl"]),
        (Rbx, ["rbx", "ebx", "bx", "bl"]),
        (Rsi, ["rsi", "esi", "si", "sil"]),
        (Rdi, ["rdi", "edi", "di", "dil"]),
        (Rbp, ["rbp", "ebp", "bp", "bpl"]),
        (Rsp, ["rsp", "esp", "sp", "spl"]),
    ];
    for (register, names) in named {
        let Some(place) = names.iter().position(|known| *known == name) else {
            continue;
        };
        // `%sp`, `%di` and so on mean the whole register, as in perf probe.
        let bytes = match place {
            0 | 2 => 8,
            1 => 4,
            _ => 1,
        };
        return Some((register, bytes));
    }
    match name {
        "rip" | "ip" => return Some((Rip, 8)),
        "flags" => return Some((Flags, 8)),
        _ => {}
    }
    let digits = name.strip_prefix('r')?;
    let (digits, bytes) = match digits.strip_suffix(['d', 'w', 'b']) {
        Some(rest) if digits.ends_with('d') => (rest, 4),
        Some(rest) if digits.ends_with('w') => (rest, 2),
        Some(rest) => (rest, 1),
        None => (digits, 8),
    };
    let number: u8 = digits
        .parse()
        .ok()
        .filter(|number| (8..16).contains(number))?;
    Register::from_u8(number).map(|register| (register, bytes))
}
