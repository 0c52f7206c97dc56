//! Random, mostly valid transactions.

use std::collections::BTreeMap;

use ovsdb::datum::{Atom, AtomicType, Datum};
use ovsdb::memory::Database;
use ovsdb::operation::{Condition, Function, Mutation, Mutator, Operation, RowValues};
use ovsdb::schema::{BaseType, ColumnSchema, ColumnType, DatabaseSchema};
use ovsdb::uuid::Uuid;

/// The client's lock.
pub(crate) const LOCK: &str = "mine";

/// UUIDs of inserts; few, so that they conflict, also across tables.
pub(crate) const POOL: std::ops::Range<u8> = 1..24;

pub(crate) fn pooled(number: u8) -> Uuid {
    Uuid::from_bytes([number; 16])
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Generates random, mostly valid transactions.
pub(crate) struct Author<'a> {
    random: &'a mut Random,
    schema: &'a DatabaseSchema,
    tables: &'a [&'static str],
    rows: BTreeMap<&'a str, Vec<(Uuid, RowValues)>>,
    /// Rows of this transaction: table and UUID.
    inserted: Vec<(&'a str, Atom)>,
    /// Rows that this transaction deletes.
    gone: Vec<(&'a str, Uuid)>,
    /// One value of the next operation shall be invalid. Only one: the server's order of checks is undefined.
    spoil: bool,
}

impl<'a> Author<'a> {
    pub(crate) fn new(random: &'a mut Random, database: &'a Database, tables: &'a [&'static str]) -> Self {
        let mut rows: BTreeMap<&str, Vec<(Uuid, RowValues)>> = BTreeMap::new();
        for (table, uuid, row) in database.tables() {
            rows.entry(table).or_default().push((uuid, row));
        }
        Self { random, schema: database.schema(), tables, rows, inserted: Vec::new(), gone: Vec::new(), spoil: false }
    }

    pub(crate) fn transaction(mut self) -> Vec<Operation> {
        let mut operations: Vec<Operation> = (0..1 + self.random.below(5)).map(|_| self.operation()).collect();
        // If both rows are touched, it is undefined whether a row of Needy may lose its last reference: see
        // `defect`. The in-memory database rejects it.
        if operations.iter().any(|operation| operation.table() == Some("Needy")) {
            operations.retain(|operation| operation.name() != "delete" || operation.table() != Some("Thing"));
        }
        operations
    }

    fn operation(&mut self) -> Operation {
        self.spoil = self.random.chance(3);
        // The first tables are used most.
        let place = self.random.below(self.tables.len()).min(self.random.below(self.tables.len()));
        let table = self.tables[place];
        let crowded = self.rows.get(table).map_or(0, Vec::len) > 5 + self.random.below(14);
        let named = if self.spoil && self.random.chance(5) { "Nowhere".to_owned() } else { table.to_owned() };
        match self.random.below(100) {
            0..45 if !crowded => self.insert(table),
            0..15 => self.delete(table, named),
            15..60 => {
                let row = self.row(table, 20, false);
                Operation::Update { conditions: self.conditions(table, false), table: named, row }
            }
            60..75 if !self.schema.tables[table].columns.iter().all(|column| column.kind.is_scalar()) => {
                self.mutate(table)
            }
            60..82 => self.delete(table, named),
            82..90 => Operation::Select {
                conditions: self.conditions(table, false),
                columns: self.random.chance(70).then(|| self.columns(table)),
                table: named,
            },
            90..96 => self.wait(table),
            96 => Operation::Comment("a word".into()),
            97 => Operation::Commit { durable: self.random.chance(10) },
            98 => Operation::Assert { lock: self.random.pick(&[LOCK, LOCK, LOCK, LOCK, "theirs", "no lock"]).into() },
            _ if self.random.chance(30) => Operation::Abort,
            _ => Operation::Comment(String::new()),
        }
    }

    fn insert(&mut self, table: &'a str) -> Operation {
        let name = self.random.chance(25).then(|| self.random.pick(&["r1", "r2", "r3"]).to_owned());
        let taken: Vec<Uuid> = self.rows.get(table).into_iter().flatten().map(|(uuid, _)| *uuid).collect();
        let free: Vec<Uuid> = POOL.map(pooled).filter(|uuid| !taken.contains(uuid)).collect();
        let uuid = match self.random.below(100) {
            0..90 if !free.is_empty() => Some(self.random.pick(&free)),
            90..92 => Some(pooled(POOL.start)),
            92..96 => self.gone.iter().rfind(|(other, _)| *other == table).map(|(_, uuid)| *uuid),
            _ => None,
        };
        let row = self.row(table, 60, true);
        match (&name, uuid) {
            (Some(name), _) if self.random.chance(50) => self.inserted.push((table, Atom::Named(name.as_str().into()))),
            (_, Some(uuid)) => self.inserted.push((table, Atom::Uuid(uuid))),
            _ => {}
        }
        Operation::Insert { table: table.into(), row, uuid, name }
    }

    fn delete(&mut self, table: &'a str, named: String) -> Operation {
        let conditions = self.conditions(table, true);
        if let [Condition { column, value: Datum::One(Atom::Uuid(uuid)), .. }] = &conditions[..]
            && column == "_uuid"
        {
            self.gone.push((table, *uuid));
        }
        Operation::Delete { table: named, conditions }
    }

    fn row(&mut self, table: &str, percent: usize, insert: bool) -> RowValues {
        let mut row = RowValues::new();
        for column in self.writable(table) {
            let wanted = self.random.chance(percent) || insert && column.kind.min == 1 && self.random.chance(97);
            if wanted && (insert || column.mutable || self.spoil) {
                let datum = self.datum(&column.kind);
                row.insert(column.name.clone(), datum);
                if !column.mutable {
                    self.spoil = false;
                }
            }
        }
        if std::mem::take(&mut self.spoil) && self.random.chance(20) {
            row.insert(self.random.pick(&["nothing", "_uuid"]).into(), Datum::One(Atom::Uuid(pooled(1))));
        }
        row
    }

    /// Without columns that refer to tables that no transaction fills.
    fn writable(&self, table: &str) -> Vec<&'a ColumnSchema> {
        let bases = |column: &'a ColumnSchema| [Some(&column.kind.key), column.kind.value.as_ref()];
        let known = |base: &BaseType| {
            base.refers_to.as_ref().is_none_or(|reference| self.tables.contains(&reference.table.as_str()))
        };
        let columns = self.schema.tables[table].columns.iter();
        columns.filter(|column| bases(column).into_iter().flatten().all(known)).collect()
    }

    fn datum(&mut self, kind: &ColumnType) -> Datum {
        let bases = [Some(&kind.key), kind.value.as_ref()];
        let nobody = bases.into_iter().flatten().any(|base| self.candidates(base).is_some_and(|rows| rows.is_empty()));
        if nobody && kind.min == 0 && self.random.chance(97) {
            return if kind.is_map() { Datum::map([]) } else { Datum::Empty };
        }
        // Rarely, so that later columns of a row are reached.
        let spoilt = self.spoil && self.random.chance(15);
        let (least, most) = (usize::try_from(kind.min).unwrap(), kind.max.map_or(4, |max| max.min(4) as usize));
        let mut count = least + self.random.below(most - least + 1);
        if spoilt {
            self.spoil = false;
            match self.random.below(6) {
                0 => count = self.random.pick(&[0, 5]),
                1 => return self.random.pick(&[Datum::map([]), Datum::Empty, Datum::One(Atom::Boolean(true))]),
                _ => return Datum::One(self.wrong_atom(&kind.key)),
            }
        }
        match &kind.value {
            None => Datum::set((0..count).map(|_| self.atom(&kind.key)).collect::<Vec<_>>()),
            Some(value) => Datum::map((0..count).map(|_| (self.atom(&kind.key), self.atom(value))).collect::<Vec<_>>()),
        }
    }

    fn wrong_atom(&mut self, base: &BaseType) -> Atom {
        match base.atomic {
            AtomicType::Integer => self.random.pick(&[Atom::Integer(1_000_000), Atom::Real(2.0), Atom::Real(2.5)]),
            AtomicType::Real => self.random.pick(&[Atom::Integer(1_000_000), Atom::Real(-1e9), Atom::Real(-0.0)]),
            AtomicType::String => self.random.pick(&[Atom::String("a long word".into()), Atom::Integer(7)]),
            AtomicType::Boolean | AtomicType::Uuid => Atom::String("no".into()),
        }
    }

    fn atom(&mut self, base: &BaseType) -> Atom {
        if let Some(choices) = &base.choices {
            return self.random.pick(&choices.atoms().collect::<Vec<_>>());
        }
        match base.atomic {
            AtomicType::Integer => {
                let any = i64::try_from(self.random.below(20)).unwrap() - 2;
                let (min, max) =
                    (base.min.map_or(i64::MIN, |min| min as i64), base.max.map_or(i64::MAX, |max| max as i64));
                Atom::Integer(any.clamp(min, max))
            }
            AtomicType::Real => Atom::Real((self.random.below(17) as f64 - 8.0) / 4.0),
            AtomicType::Boolean => Atom::Boolean(self.random.chance(50)),
            AtomicType::String => {
                let short = ["", "a", "b", "c", "d", "é", "ff", "gg", "hh", "ii", "jj", "kk"];
                let least = base.min_length.map_or(0, |_| 1);
                let word = short[least + self.random.below(short.len() - least)];
                // Few strings, so that they conflict; more where the type allows, so that not all do.
                let more =
                    if base.max_length.is_none() { ["", "-x", "-y", "-z", "-w"][self.random.below(5)] } else { "" };
                Atom::String(format!("{word}{more}").as_str().into())
            }
            AtomicType::Uuid => self.identity(base),
        }
    }

    /// The rows that a column may refer to; those of this transaction last.
    fn candidates(&self, base: &BaseType) -> Option<Vec<Atom>> {
        let table = base.refers_to.as_ref()?.table.as_str();
        let there = self.rows.get(table).into_iter().flatten().map(|(uuid, _)| Atom::Uuid(*uuid));
        let fresh = self.inserted.iter().filter(|(other, _)| *other == table).map(|(_, atom)| atom.clone());
        Some(there.chain(fresh).collect())
    }

    /// A row that the column may refer to; sometimes a missing or later one.
    fn identity(&mut self, base: &BaseType) -> Atom {
        let Some(candidates) = self.candidates(base) else { return Atom::Uuid(pooled(POOL.start)) };
        match (self.random.below(100), candidates.last()) {
            (0..40, Some(last)) => last.clone(),
            (40..97, Some(_)) => self.random.pick(&candidates),
            (0..98, _) if std::mem::take(&mut self.spoil) => Atom::Named("no name".into()),
            (0..98, _) => Atom::Named(self.random.pick(&["r1", "r2"]).into()),
            _ => Atom::Uuid(pooled(POOL.start + u8::try_from(self.random.below(23)).unwrap())),
        }
    }

    fn conditions(&mut self, table: &str, few: bool) -> Vec<Condition> {
        let there: Vec<Uuid> = self.rows.get(table).into_iter().flatten().map(|(uuid, _)| *uuid).collect();
        match self.random.below(100) {
            0..55 if !there.is_empty() => vec![Condition::uuid(self.random.pick(&there))],
            55..60 if !few => vec![],
            _ => (0..1 + self.random.below(2)).map(|_| self.condition(table)).collect(),
        }
    }

    fn condition(&mut self, table: &str) -> Condition {
        let column = self.random.pick(&self.writable(table));
        let functions = [Function::Equal, Function::NotEqual, Function::Includes, Function::Excludes];
        let compares = [Function::Less, Function::LessOrEqual, Function::Greater, Function::GreaterOrEqual];
        let number = matches!(column.kind.key.atomic, AtomicType::Integer | AtomicType::Real);
        let comparable = number && column.kind.max == Some(1) && column.kind.value.is_none() || self.spoil;
        let compare = comparable && self.random.chance(50);
        let function = self.random.pick(if compare { &compares } else { &functions });
        let rows = self.rows.get(table).cloned().unwrap_or_default();
        let value = if !rows.is_empty() && self.random.chance(50) {
            self.random.pick(&rows).1[&column.name].clone()
        } else if column.kind.is_scalar() || matches!(function, Function::Equal | Function::NotEqual) {
            self.datum(&column.kind)
        } else {
            // includes and excludes compare subsets.
            let max = if function == Function::Excludes { None } else { column.kind.max };
            self.datum(&ColumnType { min: 0, max, ..column.kind.clone() })
        };
        Condition::new(column.name.as_str(), function, value)
    }

    fn columns(&mut self, table: &str) -> Vec<String> {
        let writable = self.writable(table);
        let mut columns: Vec<String> =
            (0..self.random.below(4)).map(|_| self.random.pick(&writable).name.clone()).collect();
        columns.extend(self.random.chance(20).then(|| "_uuid".to_owned()));
        if !self.spoil {
            columns.sort();
            columns.dedup();
        }
        columns
    }

    fn wait(&mut self, table: &str) -> Operation {
        let rows = self.rows.get(table).cloned().unwrap_or_default();
        let (conditions, rows) = if !rows.is_empty() && self.random.chance(70) {
            let (uuid, mut row) = self.random.pick(&rows);
            row.insert("_uuid".into(), Datum::One(Atom::Uuid(uuid)));
            (vec![Condition::uuid(uuid)], vec![row])
        } else {
            let rows = (0..self.random.below(2)).map(|_| self.row(table, 10, true)).collect();
            (self.conditions(table, false), rows)
        };
        let columns = self.random.chance(90).then(|| self.columns(table));
        let equal = self.random.chance(70);
        Operation::Wait { table: table.into(), conditions, columns, equal, rows, timeout: Some(0) }
    }

    fn mutate(&mut self, table: &str) -> Operation {
        let mutations: Vec<Mutation> = (0..1 + self.random.below(3)).map(|_| self.mutation(table)).collect();
        // Which of several rows fails first is undefined.
        let computes = mutations.iter().any(|one| !matches!(one.mutator, Mutator::Insert | Mutator::Delete));
        let conditions = match self.rows.get(table) {
            Some(rows) if computes => vec![Condition::uuid(self.random.pick(rows).0)],
            _ => self.conditions(table, computes),
        };
        Operation::Mutate { table: table.into(), conditions, mutations }
    }

    fn mutation(&mut self, table: &str) -> Mutation {
        let columns = self.writable(table);
        let fits = |column: &&ColumnSchema| !column.kind.is_scalar() && column.mutable;
        let fitting: Vec<&ColumnSchema> = columns.iter().copied().filter(fits).collect();
        let odd = fitting.is_empty() || self.spoil && self.random.chance(30);
        let column = self.random.pick(if odd { &columns } else { &fitting });
        let number = matches!(column.kind.key.atomic, AtomicType::Integer | AtomicType::Real);
        if odd || number && column.kind.value.is_none() && self.random.chance(50) {
            let compute = [Mutator::Add, Mutator::Subtract, Mutator::Multiply, Mutator::Divide, Mutator::Modulo];
            let mutator = self.random.pick(&compute);
            let operand = match self.random.below(20) {
                // A negative number times zero crashes the real server.
                0..2 if mutator != Mutator::Multiply => Atom::Integer(0),
                2..4 => Atom::Integer(self.random.pick(&[i64::MAX, i64::MIN, i64::MAX / 2, 4_000_000_000])),
                4 => Atom::Real(self.random.pick(&[0.5, 1e308])),
                _ => Atom::Integer(self.random.pick(&[1, 2, 3, -1])),
            };
            return Mutation::new(column.name.as_str(), mutator, operand);
        }
        let mutator = self.random.pick(&[Mutator::Insert, Mutator::Insert, Mutator::Delete]);
        let many = ColumnType { min: 0, ..column.kind.clone() };
        let keys = ColumnType { value: None, ..many.clone() };
        let by_keys = mutator == Mutator::Delete && column.kind.is_map() && self.random.chance(50);
        Mutation::new(column.name.as_str(), mutator, self.datum(if by_keys { &keys } else { &many }))
    }
}
