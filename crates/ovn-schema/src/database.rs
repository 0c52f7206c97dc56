//! A declared database, and the check of a server's schema against it.
//!
//! Declared tables + the server's schema ──check()──▶ `Report`: disabled features, errors, usable columns

use std::collections::BTreeMap;

use ovsdb::schema::{DatabaseSchema, TableSchema};

use crate::feature::Feature;
use crate::report::{FeatureOff, Missing, Problem, Report, Usable};
use crate::table::{ColumnDeclaration, TableDeclaration};
use crate::value::Shape;

/// What is required of a server, for one database.
#[derive(Debug, Clone, Copy)]
pub struct Database {
    /// Such as `OVN_Northbound`.
    pub name: &'static str,
    /// Tables, per module.
    pub modules: &'static [&'static [TableDeclaration]],
}

impl Database {
    /// In the order of the modules.
    pub fn tables(&self) -> impl Iterator<Item = &'static TableDeclaration> {
        self.modules.iter().copied().flatten()
    }

    /// Compares a server's schema with the declaration.
    pub fn check(&self, schema: &DatabaseSchema) -> Report {
        let mut findings = Findings::default();
        let mut usable = BTreeMap::new();
        if schema.name == self.name {
            for table in self.tables() {
                usable.insert(table.name, findings.check_table(table, schema.tables.get(table.name)));
            }
        } else {
            findings.add(Feature::Core, Missing::database(self.name));
        }
        let errors = findings.0.remove(&Feature::Core).unwrap_or_default();
        let off = findings.0.into_iter().map(|(feature, missing)| FeatureOff { feature, missing }).collect();
        Report { database: schema.name.clone(), version: schema.version.clone(), off, errors, usable }
    }
}

#[derive(Default)]
struct Findings(BTreeMap<Feature, Vec<Missing>>);

impl Findings {
    fn add(&mut self, feature: Feature, missing: Missing) {
        let all = self.0.entry(feature).or_default();
        if !all.contains(&missing) {
            all.push(missing);
        }
    }

    /// Returns the usable columns.
    fn check_table(&mut self, declared: &TableDeclaration, found: Option<&TableSchema>) -> Vec<Usable> {
        let Some(found) = found else {
            // Also for the features of its columns: each must be reported as disabled.
            let features = declared.columns.iter().flat_map(|column| column.features(declared.feature));
            for feature in features.chain([declared.feature]) {
                self.add(feature, Missing::table(declared.name));
            }
            return Vec::new();
        };
        declared.columns.iter().filter_map(|column| self.check_column(declared, column, found)).collect()
    }

    fn check_column(
        &mut self,
        table: &TableDeclaration,
        declared: &ColumnDeclaration,
        found: &TableSchema,
    ) -> Option<Usable> {
        let feature = declared.feature.unwrap_or(table.feature);
        let problem = match found.column(declared.name) {
            None => Problem::Absent,
            Some(column) if !declared.shape.fits(&column.kind) => {
                Problem::OtherShape { needed: declared.shape, found: Shape::of(&column.kind) }
            }
            Some(column) => {
                for choice in declared.choices {
                    let word = ovsdb::datum::Atom::String(choice.word.into());
                    if column.kind.key.choices.as_ref().is_some_and(|allowed| !allowed.contains(&word)) {
                        let problem = Problem::NotAllowed(choice.word);
                        self.add(
                            choice.feature.unwrap_or(feature),
                            Missing::column(table.name, declared.name, problem),
                        );
                    }
                }
                return Some(Usable {
                    column: declared.name,
                    writable: !declared.observed,
                    changeable: !declared.observed && column.mutable,
                });
            }
        };
        for feature in declared.features(table.feature) {
            self.add(feature, Missing::column(table.name, declared.name, problem.clone()));
        }
        None
    }
}
