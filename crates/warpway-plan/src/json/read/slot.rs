//! Typed reading on top of `serde`'s data model: a [`Slot`] is a value that is still to be read. A value of the
//! wrong type is noted with its path and skipped; the result is then a placeholder, and the file is refused in
//! the end. Only broken syntax ends reading at once. Memory stays linear in the input, recursion is bounded by the
//! depth of the format.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::check::{Clipped, Notes, Step};
use crate::ir::BufferKind;

/// What reading collects beside the plan.
#[derive(Debug, Default)]
pub(in crate::json) struct Context {
    pub(super) notes: Notes,
    /// Buffers that operations of the rank under way claim for their switch channels.
    pub(super) claims: Vec<SwitchClaim>,
    /// A glre in the shape that MSCCL++ prints was read; it needs no listing.
    pub(super) printed_glre: bool,
}

/// A lone glre of MSCCL++ names the buffer that its channel implies.
#[derive(Debug)]
pub(in crate::json) struct SwitchClaim {
    pub(super) operation: crate::check::Path,
    pub(super) block: usize,
    pub(super) position: u32,
    pub(super) buffer: BufferKind,
}

/// A value that is still to be read.
pub(in crate::json) struct Slot<'c, D> {
    pub(super) deserializer: D,
    pub(super) context: &'c mut Context,
}

/// Something that is one value of the file.
pub(super) trait Read: Sized {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error>;
}

/// Something that is an object of the file, filled key by key in any order.
pub(in crate::json) trait Object: Default {
    /// The keys it may have, with what they hold; at most 32.
    const KEYS: &'static [Key];
    /// Other keys are none of our business.
    const OPEN: bool = false;

    /// Reads the value of one of `KEYS`; called once for each key at most.
    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error>;
}

/// A key of an object.
pub(in crate::json) struct Key {
    pub(in crate::json) name: &'static str,
    /// What it holds, if it must be there.
    pub(super) required: Option<&'static str>,
}

pub(super) const fn required(name: &'static str, what: &'static str) -> Key {
    Key { name, required: Some(what) }
}

pub(super) const fn optional(name: &'static str) -> Key {
    Key { name, required: None }
}

/// The keys that an object had, as bits of [`Object::KEYS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Keys(u32);

impl Keys {
    pub(super) fn has<T: Object>(self, name: &str) -> bool {
        T::KEYS.iter().position(|key| key.name == name).is_some_and(|at| self.0 & (1 << at) != 0)
    }

    pub(super) fn names<T: Object>(self) -> impl Iterator<Item = &'static str> {
        T::KEYS.iter().enumerate().filter(move |(at, _)| self.0 & (1 << at) != 0).map(|(_, key)| key.name)
    }
}

impl<'c, D> Slot<'c, D> {
    pub(super) fn new(deserializer: D, context: &'c mut Context) -> Self {
        Self { deserializer, context }
    }
}

impl<'de, D: Deserializer<'de>> Slot<'_, D> {
    pub(super) fn skip(self) -> Result<(), D::Error> {
        self.deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ())
    }

    pub(super) fn boolean(self) -> Result<bool, D::Error> {
        match self.deserializer.deserialize_any(Any(TakeScalar))? {
            Found::Boolean(value) => Ok(value),
            other => Ok(mistyped(&mut self.context.notes, &other, "true or false")),
        }
    }

    /// An exact unsigned number; nothing goes through floating point.
    pub(super) fn number(self) -> Result<Option<u64>, D::Error> {
        match self.deserializer.deserialize_any(Any(TakeScalar))? {
            Found::Number(value) => Ok(Some(value)),
            other => Ok(mistyped(&mut self.context.notes, &other, "an unsigned 64-bit integer")),
        }
    }

    /// A rank, a position or an identifier.
    pub(super) fn position(self) -> Result<Option<u32>, D::Error> {
        match self.deserializer.deserialize_any(Any(TakeScalar))? {
            Found::Number(value) => {
                let position = u32::try_from(value).ok();
                if position.is_none() {
                    self.context.notes.note(109, value, "at most 4294967295");
                }
                Ok(position)
            }
            other => Ok(mistyped(&mut self.context.notes, &other, "an unsigned integer")),
        }
    }

    pub(super) fn text(self) -> Result<Option<Cow<'de, str>>, D::Error> {
        match self.deserializer.deserialize_any(Any(TakeScalar))? {
            Found::Text(text) => Ok(Some(text)),
            other => Ok(mistyped(&mut self.context.notes, &other, "a string")),
        }
    }

    /// A value that has a name; `rule` is violated by other names.
    pub(super) fn named<T: Copy>(
        self,
        rule: u16,
        from_name: impl Fn(&str) -> Option<T>,
        names: impl FnOnce() -> Vec<(T, &'static str)>,
    ) -> Result<Option<T>, D::Error> {
        let Slot { deserializer, context } = self;
        let Some(text) = Slot::new(deserializer, context).text()? else { return Ok(None) };
        let value = from_name(&text);
        if value.is_none() {
            let names: Vec<String> = names().iter().map(|(_, name)| format!("`{name}`")).collect();
            context.notes.note(
                rule,
                format!("\"{}\"", Clipped(&text)),
                format!("one of {}", names.join(", ")),
            );
        }
        Ok(value)
    }

    pub(super) fn list<T: Read>(self) -> Result<Vec<T>, D::Error> {
        let Slot { deserializer, context } = self;
        match deserializer.deserialize_any(Any(TakeList { context, read: std::marker::PhantomData }))? {
            Ok(list) => Ok(list),
            Err(other) => Ok(mistyped(&mut context.notes, &other, "a list")),
        }
    }

    /// Fills `object`; `None` if the value is no object.
    pub(super) fn object<T: Object>(self, object: &mut T) -> Result<Option<Keys>, D::Error> {
        let Slot { deserializer, context } = self;
        match deserializer.deserialize_any(Any(TakeObject { context, object }))? {
            Ok(keys) => Ok(Some(keys)),
            Err(other) => Ok(mistyped(&mut context.notes, &other, "an object")),
        }
    }
}

impl Read for u64 {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        Ok(slot.number()?.unwrap_or_default())
    }
}

impl Read for u32 {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        Ok(slot.position()?.unwrap_or_default())
    }
}

fn mistyped<T: Default>(notes: &mut Notes, found: &Found<'_>, expected: &str) -> T {
    notes.note(101, found, expected);
    T::default()
}

/// A value as far as it was looked at.
enum Found<'de> {
    Null,
    Boolean(bool),
    Number(u64),
    Negative(i64),
    Fraction(f64),
    Text(Cow<'de, str>),
    List,
    Object,
}

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Negative(value) => write!(f, "{value}"),
            // What does not fit 64 bits is one too.
            Self::Fraction(value) => write!(f, "the floating-point number {value:e}"),
            Self::Text(text) => write!(f, "\"{}\"", Clipped(text)),
            Self::List => f.write_str("a list"),
            Self::Object => f.write_str("an object"),
        }
    }
}

/// What to do with a value of whatever type.
trait Take<'de>: Sized {
    type Value;

    fn other(self, found: Found<'de>) -> Self::Value;

    fn list<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.other(Found::List))
    }

    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.other(Found::Object))
    }
}

struct Any<T>(T);

impl<'de, T: Take<'de>> Visitor<'de> for Any<T> {
    type Value = T::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(self.0.other(Found::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(self.0.other(Found::Boolean(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(self.0.other(Found::Number(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(self.0.other(u64::try_from(value).map_or(Found::Negative(value), Found::Number)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(self.0.other(Found::Fraction(value)))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(self.0.other(Found::Text(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.other(Found::Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        self.0.list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        self.0.object(object)
    }
}

struct TakeScalar;

impl<'de> Take<'de> for TakeScalar {
    type Value = Found<'de>;

    fn other(self, found: Found<'de>) -> Found<'de> {
        found
    }
}

struct TakeList<'c, T> {
    context: &'c mut Context,
    read: std::marker::PhantomData<T>,
}

impl<'de, T: Read> Take<'de> for TakeList<'_, T> {
    type Value = Result<Vec<T>, Found<'de>>;

    fn other(self, found: Found<'de>) -> Self::Value {
        Err(found)
    }

    fn list<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        loop {
            self.context.notes.path.push(Step::Index(values.len()));
            let element = Element { context: self.context, read: self.read };
            let value = list.next_element_seed(element)?;
            self.context.notes.path.pop();
            let Some(value) = value else { return Ok(Ok(values)) };
            if values.is_empty() {
                // Most lists of operations have one element; growing by pushing would reserve four.
                values.reserve_exact(1);
            }
            values.push(value);
        }
    }
}

struct Element<'c, T> {
    context: &'c mut Context,
    read: std::marker::PhantomData<T>,
}

impl<'de, T: Read> DeserializeSeed<'de> for Element<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::read(Slot::new(deserializer, self.context))
    }
}

struct TakeObject<'c, T> {
    context: &'c mut Context,
    object: &'c mut T,
}

impl<'de, T: Object> Take<'de> for TakeObject<'_, T> {
    type Value = Result<Keys, Found<'de>>;

    fn other(self, found: Found<'de>) -> Self::Value {
        Err(found)
    }

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keys = Keys::default();
        while let Some(found) = map.next_key_seed(KeyOf::<T>(std::marker::PhantomData))? {
            let notes = &mut self.context.notes;
            match found {
                Ok(at) if keys.0 & (1 << at) == 0 => {
                    keys.0 |= 1 << at;
                    let key = T::KEYS[at].name;
                    notes.path.push(Step::Key(key));
                    map.next_value_seed(Field { context: self.context, object: self.object, key })?;
                    self.context.notes.path.pop();
                }
                Ok(at) => {
                    notes.note_key(T::KEYS[at].name, 101, "a second value", "each key once");
                    map.next_value::<IgnoredAny>()?;
                }
                Err(key) => {
                    if !T::OPEN {
                        notes.within(Step::Unknown(key.into_owned()), |notes| {
                            notes.note(106, "an unknown key", "none: it is ignored");
                        });
                    }
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        for (at, key) in T::KEYS.iter().enumerate() {
            if let Some(what) = key.required.filter(|_| keys.0 & (1 << at) == 0) {
                self.context.notes.note_key(key.name, 101, "nothing", what);
            }
        }
        Ok(Ok(keys))
    }
}

/// The position in [`Object::KEYS`], or a key that is not there.
struct KeyOf<T>(std::marker::PhantomData<T>);

impl<'de, T: Object> DeserializeSeed<'de> for KeyOf<T> {
    type Value = Result<usize, Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, T: Object> Visitor<'de> for KeyOf<T> {
    type Value = Result<usize, Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(T::KEYS.iter().position(|known| known.name == key).ok_or(Cow::Borrowed(key)))
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(T::KEYS.iter().position(|known| known.name == key).ok_or_else(|| Cow::Owned(key.to_owned())))
    }
}

struct Field<'c, T> {
    context: &'c mut Context,
    object: &'c mut T,
    key: &'static str,
}

impl<'de, T: Object> DeserializeSeed<'de> for Field<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.object.field(self.key, Slot::new(deserializer, self.context))
    }
}
