// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens into a spec. Operators bind as they do in C.

use super::lexer::{tokens, Token};
use super::place::{place, place_text};
use super::signature;
use super::words;
use super::{
    Assignment, Binary, CastType, Changed, Expression, ExpressionKind, Field, Span, Spec,
    SpecError, Unary, ValueFormat,
};
use nsprobe_common::program::BYTES_MAX;

/// Deepest nesting of an expression.
const DEPTH_MAX: u32 = 48;
/// Most parts of the expressions of one text: about as many as a program has steps.
/// This bounds what goes deep by going on, too: `a+a+a…`, `a.b.b…`.
const PARTS_MAX: u32 = 512;

/// The advice where a name may be meant that the language cannot separate from what follows.
const IN_QUOTES: &str = "a name with blanks or brackets stands in `backquotes`";

/// Reads what stands after `BINARY:`.
pub(super) fn spec(text: &str) -> Result<Spec, SpecError> {
    let place = place_text(text)?;
    let (span, after) = (place.0.clone(), place.2);
    let read = spec_of(text, place);
    // The brackets after an unquoted name may be those of its parameters.
    let is_quoted = text
        .get(span.start..)
        .is_some_and(|text| text.starts_with(['"', '`']));
    let end = match &read {
        _ if is_quoted => None,
        Ok(spec) if !signature::has_types(spec) => None,
        _ => signature::end(text, after),
    };
    let Some(end) = end else {
        return read;
    };
    let name = text.get(span.start..end).unwrap_or("").to_owned();
    let with_parameters = spec_of(text, (span.start..end, name, end));
    match (read, with_parameters) {
        (_, Ok(spec)) => Ok(spec),
        (Ok(spec), Err(_)) => Ok(spec),
        (Err(_), Err(error)) if error.message.ends_with(IN_QUOTES) => Err(error),
        (Err(_), Err(mut error)) => {
            error.message = format!("{}; {IN_QUOTES}", error.message);
            Err(error)
        }
    }
}

/// Reads a spec whose place, its text, and the rest were separated.
fn spec_of(
    text: &str,
    (place_span, place_text, after): (Span, String, usize),
) -> Result<Spec, SpecError> {
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
    if parser.peek().is_some() {
        let message = "here the spec should end, or `if CONDITION` follow";
        return match condition {
            None => parser.error(format!("{message}; {IN_QUOTES}")),
            Some(_) => parser.error(message),
        };
    }
    Ok(Spec {
        place,
        place_span,
        at_return,
        fields,
        condition,
    })
}

/// Reads a list of fields.
pub(super) fn fields(text: &str) -> Result<Vec<Field>, SpecError> {
    let mut parser = Parser::new(text, 0)?;
    let fields = parser.fields(None)?;
    parser.end("here a comma should stand")?;
    Ok(fields)
}

/// Reads an assignment.
pub(super) fn assignment(text: &str) -> Result<Assignment, SpecError> {
    let mut parser = Parser::new(text, 0)?;
    let target = match parser.take_name("return") {
        true => Changed::Call,
        false => {
            let place = parser.expression()?;
            parser.expect(
                "=",
                "here = should stand: PLACE = EXPRESSION, or return EXPRESSION",
            )?;
            Changed::Place(place)
        }
    };
    let value = parser.expression()?;
    parser.end("here the assignment should end")?;
    Ok(Assignment {
        target,
        value,
        text: text.trim().to_owned(),
    })
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, Span)>,
    at: usize,
    depth: u32,
    parts: u32,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, from: usize) -> Result<Parser<'a>, SpecError> {
        Ok(Parser {
            text,
            tokens: tokens(text, from)?,
            at: 0,
            depth: 0,
            parts: 0,
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

    fn error<T>(&self, message: impl Into<String>) -> Result<T, SpecError> {
        Err(SpecError::new(self.span(), message))
    }

    fn expect(&mut self, mark: &str, message: &str) -> Result<(), SpecError> {
        match self.take(mark) {
            true => Ok(()),
            false => self.error(message),
        }
    }

    fn end(&self, message: &str) -> Result<(), SpecError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.error(message),
        }
    }

    fn fields(&mut self, close: Option<&str>) -> Result<Vec<Field>, SpecError> {
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

    fn field(&mut self) -> Result<Field, SpecError> {
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

    fn format(&mut self) -> Result<ValueFormat, SpecError> {
        let span = self.span();
        let name = match self.next() {
            Some(Token::Name(name)) => name,
            _ => return Err(SpecError::new(span, words::FORMATS)),
        };
        let count = match self.take("[") {
            true => Some(self.count()?),
            false => None,
        };
        words::format(&name, count, span.start..self.last_end())
    }

    /// What stands between square brackets after a format.
    fn count(&mut self) -> Result<u16, SpecError> {
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

    fn expression(&mut self) -> Result<Expression, SpecError> {
        self.binary(0)
    }

    /// Parses one level deeper, unless that is too deep.
    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, SpecError>,
    ) -> Result<T, SpecError> {
        if self.depth >= DEPTH_MAX {
            return self.error("this is nested too deeply");
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// An expression that ends here.
    fn part(&mut self, kind: ExpressionKind, start: usize) -> Result<Expression, SpecError> {
        let span = start..self.last_end();
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(SpecError::new(span, "this is too long for one probe"));
        }
        Ok(Expression { kind, span })
    }

    /// An expression of operators that bind at least so tightly.
    fn binary(&mut self, least: u8) -> Result<Expression, SpecError> {
        self.nested(|parser| {
            let mut left = parser.unary()?;
            while let Some((operator, strength)) = parser.operator() {
                if strength < least {
                    break;
                }
                parser.skip_operator();
                let right = parser.binary(strength + 1)?;
                let start = left.span.start;
                let kind = ExpressionKind::Binary(operator, Box::new(left), Box::new(right));
                left = parser.part(kind, start)?;
            }
            Ok(left)
        })
    }

    fn operator(&self) -> Option<(Binary, u8)> {
        let mark = match self.peek()? {
            Token::Mark(mark) => mark,
            // `a%b`: after a value there is no register.
            Token::Percent(_) => "%",
            _ => return None,
        };
        Some(match mark {
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

    /// Skips an operator; `%name` was `%` and a name.
    fn skip_operator(&mut self) {
        match self.tokens.get_mut(self.at) {
            Some((token @ Token::Percent(_), span)) => {
                if let Token::Percent(name) = token {
                    *token = Token::Name(std::mem::take(name));
                }
                span.start += 1;
            }
            _ => self.at += 1,
        }
    }

    fn unary(&mut self) -> Result<Expression, SpecError> {
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
        let of = self.nested(Self::unary)?;
        self.part(ExpressionKind::Unary(operator, Box::new(of)), start)
    }

    /// `+8(%sp)` or `-8(%bp)`: eight bytes at an address, as perf probe writes it.
    fn perf_load(&mut self, start: usize) -> Result<Option<Expression>, SpecError> {
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
        let number = self.part(ExpressionKind::Number(distance), start)?;
        let sum = ExpressionKind::Binary(Binary::Add, Box::new(base), Box::new(number));
        let address = self.part(sum, start)?;
        let load = ExpressionKind::Unary(Unary::Load, Box::new(address));
        self.part(load, start).map(Some)
    }

    fn postfix(&mut self) -> Result<Expression, SpecError> {
        let mut expression = self.primary()?;
        loop {
            let start = expression.span.start;
            let kind = if self.take("[") {
                let index = self.expression()?;
                self.expect("]", "here the closing bracket should stand")?;
                ExpressionKind::Element {
                    of: Box::new(expression),
                    index: Box::new(index),
                }
            } else if self.is("->") || self.is(".") {
                self.at += 1;
                ExpressionKind::Member {
                    of: Box::new(expression),
                    name: self.member_name()?,
                }
            } else {
                return Ok(expression);
            };
            expression = self.part(kind, start)?;
        }
    }

    /// The name of a member; those of Rust's tuples are numbers.
    fn member_name(&mut self) -> Result<String, SpecError> {
        let span = self.span();
        match self.next() {
            Some(Token::Name(name)) => Ok(name),
            Some(Token::Number(number)) => Ok(format!("__{number}")),
            _ => Err(SpecError::new(
                span,
                "here the name of a member should stand",
            )),
        }
    }

    fn primary(&mut self) -> Result<Expression, SpecError> {
        let span = self.span();
        let kind = match self.next() {
            Some(Token::Number(value)) => ExpressionKind::Number(value),
            Some(Token::Text(bytes)) => ExpressionKind::Text(bytes),
            Some(Token::Name(name)) if name == "entry" && self.is("(") => {
                self.at += 1;
                let of = self.expression()?;
                self.expect(")", "here the closing bracket should stand")?;
                ExpressionKind::AtEntry(Box::new(of))
            }
            Some(Token::Name(name)) if self.is("(") => return Err(words::call(&name, span)),
            Some(Token::Name(name)) => match words::argument(&name) {
                Some(number) => ExpressionKind::Argument(number),
                None => ExpressionKind::Name(name),
            },
            Some(Token::Dollar(name)) => words::dollar(&name, &span)?,
            Some(Token::Percent(name)) => words::register(&name, &span)?,
            Some(Token::Mark("(")) => return self.bracket(span.start),
            Some(_) => return Err(SpecError::new(span, "here a value should stand")),
            None => return self.error("here a value is missing"),
        };
        self.part(kind, span.start)
    }

    /// After an opening bracket: a type, or an expression.
    fn bracket(&mut self, start: usize) -> Result<Expression, SpecError> {
        if let Some(cast) = self.cast_type() {
            let of = self.nested(Self::unary)?;
            return self.part(ExpressionKind::Cast(cast, Box::new(of)), start);
        }
        let inner = self.expression()?;
        self.expect(")", "here the closing bracket should stand")?;
        self.part(inner.kind, start)
    }

    /// `TYPE *…)`, when that is what follows.
    fn cast_type(&mut self) -> Option<CastType> {
        let before = self.at;
        let mut names: Vec<String> = Vec::new();
        while let Some(Token::Name(name)) = self.peek() {
            names.push(name.clone());
            self.at += 1;
        }
        let found = words::cast_type(&names);
        let mut pointers = 0u8;
        while self.take("*") {
            pointers = pointers.saturating_add(1);
        }
        let closed = self.take(")");
        // Of nothing there are only pointers.
        let cast = found.filter(|cast| closed && (cast.bytes > 0 || pointers > 0));
        if cast.is_none() {
            self.at = before;
        }
        cast.map(|cast| CastType { pointers, ..cast })
    }
}
