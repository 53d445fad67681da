// SPDX-License-Identifier: MIT OR Apache-2.0
//! What names mean at a place, by debug information.

use super::error::DwarfError;
use super::function::DebugFunction;
use super::types::id_of;
use super::variable::{Local, Moment};
use super::DebugInfo;
use crate::plain::Plain;
use crate::scope::{Scope, ScopeError, Typed, Variable, VariableRole};
use crate::types::{GoKind, Member, Shape, Type, TypeId, Variants};
use crate::value::Value;
use nsprobe_symbolize::Address;
use std::rc::Rc;

/// Similar names that an error lists.
const NEAREST_COUNT: usize = 3;
/// Most classes that a member is looked for in.
const CLASSES_MAX: usize = 64;

type InScope<T> = Result<T, ScopeError>;

/// What names mean at an address of a function.
#[derive(Debug)]
pub struct DebugScope<'d, 'a> {
    debug: &'d DebugInfo<'a>,
    moment: Moment,
    /// The moments in the functions around, when this one is inlined; innermost first.
    around: Vec<Moment>,
}

impl<'a> DebugInfo<'a> {
    /// The scope of `function` at an address in it: its own names, then those of
    /// the functions that it is inlined into, then global ones.
    pub fn scope(
        &self,
        function: &DebugFunction,
        address: Address,
    ) -> Result<DebugScope<'_, 'a>, DwarfError> {
        self.guarded(|| {
            let moment = self.moment(function, address)?;
            let mut around = Vec::new();
            if function.inlined {
                for other in self.functions_holding(address.0)? {
                    if other.die == function.die {
                        break;
                    }
                    if other.outer == function.outer {
                        around.push(self.moment(&other, address)?);
                    }
                }
                around.reverse();
            }
            Ok(DebugScope {
                debug: self,
                moment,
                around,
            })
        })
    }
}

impl<'a> DebugScope<'_, 'a> {
    /// The variable that the name means in one function; `None` when it has none
    /// such.
    fn find(&self, moment: &Moment, name: &str) -> Result<Option<Variable>, DwarfError> {
        let mut named = self.debug.variables_of(moment)?;
        named.retain(|local| local.name == name);
        if let Some(local) = named.iter().find(|local| local.visible) {
            return Ok(Some(self.debug.variable_at(local, moment)));
        }
        Ok(None)
    }

    /// Why a name that the function has is not to be had at this place.
    fn out_of_scope(&self, name: &str) -> Result<Option<DwarfError>, DwarfError> {
        let elsewhere = self.debug.variables_of(&self.moment)?;
        let of_pack = |local: &&Local<'a>| {
            let number = local.name.strip_prefix(name);
            number.is_some_and(|number| number.starts_with('#'))
        };
        let pack = elsewhere.iter().filter(of_pack);
        let pack: Vec<&str> = pack.map(|local| local.name.as_str()).collect();
        if !pack.is_empty() {
            let why = format!("it is a pack of parameters: {}", pack.join(", "));
            return Ok(Some(super::variable::unreadable(name, why)));
        }
        let origin = self.debug.origin_has(&self.moment, name)?;
        Ok(if elsewhere.iter().any(|local| local.name == name) {
            Some(DwarfError::Unreadable {
                name: name.to_owned(),
                why: "it is a variable of a block that does not hold this place".to_owned(),
            })
        } else if origin {
            Some(DwarfError::OptimizedOut {
                name: name.to_owned(),
                available: Vec::new(),
            })
        } else {
            None
        })
    }

    fn lookup(&self, name: &str) -> Result<Variable, DwarfError> {
        for moment in std::iter::once(&self.moment).chain(&self.around) {
            if let Some(found) = self.find(moment, name)? {
                return Ok(found);
            }
        }
        if let Some(error) = self.out_of_scope(name)? {
            return Err(error);
        }
        if let Some(found) = self.of_object(name)? {
            return Ok(found);
        }
        if let Some(found) = self.global(name)? {
            return Ok(found);
        }
        let mut known: Vec<String> = Vec::new();
        for local in self.debug.variables_of(&self.moment)? {
            known.push(local.name);
        }
        known.extend(self.debug.names()?.variables(&self.debug.units));
        Err(DwarfError::Unknown {
            what: "variable",
            name: name.to_owned(),
            nearest: nsprobe_text::nearest(name, known, NEAREST_COUNT),
        })
    }

    /// The static member that the name means in a method, of its class or a base class; an error
    /// where it is one of the object.
    fn of_object(&self, name: &str) -> Result<Option<Variable>, DwarfError> {
        let locals = self.debug.variables_of(&self.moment)?;
        let Some(this) = locals.iter().find(|local| local.name == "this") else {
            return Ok(None);
        };
        let of_compiler = self
            .debug
            .units
            .inherited(&this.node, gimli::DW_AT_artificial)?;
        let object = self
            .debug
            .shape(id_of(self.debug.units.type_of(&this.node)?))?;
        let (Some(_), Shape::Pointer { to, .. }) = (of_compiler, object) else {
            return Ok(None);
        };
        let mut classes = vec![to];
        let mut at = 0;
        while let Some(class) = classes.get(at).copied().filter(|_| at < CLASSES_MAX) {
            at += 1;
            let Some(node) = self.debug.type_node(class)? else {
                continue;
            };
            for member in self.debug.members_of(class)? {
                match member.name {
                    Some(own) if *own == *name => {
                        let why = format!("it is a member of the object: this->{name}");
                        return Err(super::variable::unreadable(name, why));
                    }
                    Some(_) => {}
                    // A base class, or a member without a name.
                    None => classes.push(member.type_id),
                }
            }
            let names = self.debug.names()?;
            let class = names.qualified(&self.debug.units, node.die)?;
            let unit = self.moment.function.die.unit;
            let found = self.debug.global(&format!("{class}::{name}"), unit, true)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The global variable that the name means in the function: one of its class
    /// or namespaces, innermost first, or any.
    fn global(&self, name: &str) -> Result<Option<Variable>, DwarfError> {
        let unit = self.moment.function.die.unit;
        let function = self.debug.units.node(self.moment.function.die)?;
        let origin = self.debug.units.root_origin(&function)?;
        let whole = self
            .debug
            .names()?
            .qualified(&self.debug.units, origin.die)?;
        let mut scopes = super::names::parts(&whole);
        while scopes.pop().is_some() {
            let qualified = [scopes.as_slice(), &[name]].concat().join("::");
            if let Some(found) = self.debug.global(&qualified, unit, true)? {
                return Ok(Some(found));
            }
        }
        self.debug.global(name, unit, false)
    }

    /// What is known without debug information, where that is an assembler's: it names functions,
    /// but not what they take and return.
    fn of_assembler(&self) -> InScope<Option<Plain<'_>>> {
        let is_assembler = self.language()? == Some(gimli::DW_LANG_Mips_Assembler);
        Ok(is_assembler.then(|| self.plain("it is written in assembler")))
    }

    /// What is known without debug information.
    fn plain(&self, why: &'static str) -> Plain<'_> {
        Plain {
            address: self.moment.address,
            at_function: self.moment.at_entry(),
            changes_arguments: false,
            binary: Some(self.debug.binary),
            why: why.into(),
        }
    }

    fn language(&self) -> InScope<Option<gimli::DwLang>> {
        let unit = self.moment.function.die.unit;
        Ok(self.debug.guarded(|| self.debug.units.language(unit))?)
    }

    fn go_result(&self, number: usize) -> InScope<Typed> {
        let results = self.debug.guarded(|| self.of_role(VariableRole::Result))?;
        let count = results.len();
        let nth = number
            .checked_sub(1)
            .and_then(|index| results.into_iter().nth(index));
        match nth {
            Some(result) => result.value,
            None if count == 0 => Err(ScopeError::new("the function returns nothing")),
            None => Err(ScopeError::new(format!(
                "the function has {count} results, so there is no $retval{number}"
            ))),
        }
    }

    fn of_role(&self, role: VariableRole) -> Result<Vec<Variable>, DwarfError> {
        let mut locals = self.debug.variables_of(&self.moment)?;
        locals.retain(|local| local.visible && local.role == role);
        let variable = |local: &Local<'a>| self.debug.variable_at(local, &self.moment);
        Ok(locals.iter().map(variable).collect())
    }
}

impl Scope for DebugScope<'_, '_> {
    fn address(&self) -> u64 {
        self.moment.address
    }

    fn variable(&self, name: &str) -> InScope<Variable> {
        Ok(self.debug.guarded(|| self.lookup(name))?)
    }

    fn parameters(&self) -> InScope<Vec<Variable>> {
        Ok(self
            .debug
            .guarded(|| self.of_role(VariableRole::Parameter))?)
    }

    fn locals(&self) -> InScope<Vec<Variable>> {
        Ok(self.debug.guarded(|| self.of_role(VariableRole::Local))?)
    }

    fn argument(&self, number: usize) -> InScope<Typed> {
        let index = number.checked_sub(1);
        let index = index.ok_or_else(|| ScopeError::new("arguments are counted from 1: arg1"))?;
        if let Some(plain) = self.of_assembler()? {
            return plain.argument(number);
        }
        let parameters = self
            .debug
            .guarded(|| self.of_role(VariableRole::Parameter))?;
        let count = parameters.len();
        match parameters.into_iter().nth(index) {
            Some(parameter) => parameter.value,
            None => {
                let moment = &self.moment;
                let further = self
                    .debug
                    .guarded(|| self.debug.further_argument(moment, index - count));
                further?.ok_or_else(|| {
                    ScopeError::new(format!(
                        "the function has {count} parameters, so there is no argument {number}"
                    ))
                })
            }
        }
    }

    fn result(&self, number: usize) -> InScope<Typed> {
        if let Some(plain) = self.of_assembler()? {
            return plain.result(number);
        }
        if self.is_go() {
            return self.go_result(number);
        }
        match number {
            1 => Ok(self.debug.guarded(|| self.debug.retval(&self.moment))?),
            _ => Err(ScopeError::new("only functions of Go have several results")),
        }
    }

    fn goid(&self) -> InScope<Value> {
        let offset = self.debug.guarded(|| self.debug.goid_offset())?;
        self.plain("").goid_at(offset)
    }

    fn has_libcxx(&self) -> bool {
        self.debug.binary.has_libcxx()
    }

    fn resolve(&self, id: TypeId) -> InScope<Type> {
        Ok(self.debug.guarded(|| self.debug.resolve_type(id))?)
    }

    fn go_kind(&self, id: TypeId) -> InScope<Option<GoKind>> {
        Ok(self.debug.guarded(|| self.debug.go_kind(id))?)
    }

    fn is_go(&self) -> bool {
        self.language()
            .is_ok_and(|language| language == Some(gimli::DW_LANG_Go))
    }

    fn members(&self, id: TypeId) -> InScope<Rc<[Member]>> {
        Ok(self
            .debug
            .guarded(|| Ok(self.debug.members_of(id)?.into()))?)
    }

    fn variants(&self, id: TypeId) -> InScope<Option<Variants>> {
        Ok(self.debug.guarded(|| self.debug.variants_of(id))?)
    }
}

impl<'a> DebugInfo<'a> {
    /// Whether the function has such a variable in its source, of which its code
    /// knows nothing.
    fn origin_has(&self, moment: &Moment, name: &str) -> Result<bool, DwarfError> {
        let function = self.units.node(moment.function.die)?;
        let origin = self.units.root_origin(&function)?;
        let mut has = false;
        self.units.walk(&origin, |child, _| {
            let variable = matches!(
                child.tag(),
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter
            );
            has |= variable && self.units.name(child)? == Some(name);
            Ok(super::units::Children::Into)
        })?;
        Ok(has)
    }

    fn retval(&self, moment: &Moment) -> Result<Typed, DwarfError> {
        let failed = |why: &str| {
            Err(DwarfError::Unreadable {
                name: "$retval".to_owned(),
                why: why.to_owned(),
            })
        };
        if moment.function.inlined {
            return failed("the function is inlined here and does not return");
        }
        let function = self.units.node(moment.function.die)?;
        let Some(die) = self.units.type_of(&function)? else {
            return failed("the function returns nothing");
        };
        let id = id_of(Some(die));
        let passing = match self.returning(&function)? {
            Ok(passing) => passing,
            Err(why) => return failed(&why),
        };
        match self.passed(&passing, id)? {
            Ok(place) => Ok(Typed {
                place,
                kind: self.resolve_type(id)?,
            }),
            Err(why) => failed(&why),
        }
    }
}

impl From<DwarfError> for ScopeError {
    fn from(error: DwarfError) -> ScopeError {
        match error {
            DwarfError::Unknown {
                what,
                name,
                nearest,
            } => ScopeError {
                message: format!("there is no {what} `{name}`"),
                help: None,
                nearest,
            },
            other => ScopeError::new(other.to_string()),
        }
    }
}
