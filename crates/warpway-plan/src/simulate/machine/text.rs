//! JSON with the line of every value, which findings name. Small: topology files are.

use super::read::MachineError;

/// A value and the line where it begins.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: u32,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file.
    Object(Vec<(String, Node)>),
}

/// Lists and objects in each other.
const DEPTH: u32 = 32;

pub(super) fn parse(text: &str) -> Result<Node, MachineError> {
    let mut parser = Parser { rest: text, line: 1 };
    let node = parser.value(0)?;
    parser.space();
    match parser.rest.is_empty() {
        true => Ok(node),
        false => Err(parser.error("something follows the end of the document")),
    }
}

struct Parser<'t> {
    rest: &'t str,
    line: u32,
}

impl Parser<'_> {
    fn error(&self, what: impl Into<String>) -> MachineError {
        MachineError { line: self.line, field: String::new(), what: what.into() }
    }

    fn space(&mut self) {
        let rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let skipped = &self.rest[..self.rest.len() - rest.len()];
        self.line += skipped.matches('\n').count() as u32;
        self.rest = rest;
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, text: &str) -> Result<(), MachineError> {
        self.space();
        if self.take(text) { Ok(()) } else { Err(self.error(format!("`{text}` expected"))) }
    }

    fn value(&mut self, depth: u32) -> Result<Node, MachineError> {
        self.space();
        let line = self.line;
        if depth > DEPTH {
            return Err(self.error("lists and objects lie too deep in each other"));
        }
        let value = match self.rest.chars().next() {
            Some('{') => self.object(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => Value::Text(self.text()?),
            Some(c) if c == '-' || c.is_ascii_digit() => self.number()?,
            _ if self.take("true") => Value::Bool(true),
            _ if self.take("false") => Value::Bool(false),
            _ if self.take("null") => Value::Null,
            Some(_) => return Err(self.error("a value expected")),
            None => return Err(self.error("the file ends too early")),
        };
        Ok(Node { line, value })
    }

    fn list(&mut self, depth: u32) -> Result<Value, MachineError> {
        self.expect("[")?;
        let mut list = Vec::new();
        self.space();
        if self.take("]") {
            return Ok(Value::List(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            self.space();
            if self.take("]") {
                return Ok(Value::List(list));
            }
            self.expect(",")?;
        }
    }

    fn object(&mut self, depth: u32) -> Result<Value, MachineError> {
        self.expect("{")?;
        let mut members: Vec<(String, Node)> = Vec::new();
        self.space();
        if self.take("}") {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            let key = self.text()?;
            if members.iter().any(|(other, _)| *other == key) {
                return Err(MachineError { field: key, ..self.error("the key is there twice") });
            }
            self.expect(":")?;
            members.push((key, self.value(depth + 1)?));
            self.space();
            if self.take("}") {
                return Ok(Value::Object(members));
            }
            self.expect(",")?;
        }
    }

    fn number(&mut self) -> Result<Value, MachineError> {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let number = digits.parse().ok().filter(|number: &f64| number.is_finite());
        let number = number.ok_or_else(|| self.error(format!("`{digits}` is no number")))?;
        self.rest = rest;
        Ok(Value::Number(number))
    }

    fn text(&mut self) -> Result<String, MachineError> {
        if !self.take("\"") {
            return Err(self.error("a text in quotes expected"));
        }
        let mut end = 0;
        for (at, c) in self.rest.char_indices() {
            match c {
                '\n' => break,
                // Escapes are serde_json's concern; the character behind the stroke is part of the text.
                _ if at < end => {}
                '\\' => end = at + 2,
                '"' => {
                    let quoted = format!("\"{}\"", &self.rest[..at]);
                    self.rest = &self.rest[at + 1..];
                    return serde_json::from_str(&quoted).map_err(|error| self.error(error.to_string()));
                }
                _ => {}
            }
        }
        Err(self.error("the text has no end on this line"))
    }
}
