//! The `tables!` macro: generates the row type, its conversions and the schema requirements from one declaration.

/// Declares the tables of a module.
///
/// ```text
/// tables! {
///     /// Documentation.                                            required
///     table Acl = "ACL" {                                           row type, table
///         /// Documentation.
///         matching: String as "match";                              a field with another name than its column
///         /// …
///         tier: i64 where feature = AclTiers;                       without it, only this feature is off
///         /// …
///         action: String where choices = ["drop", "pass": AclTiers]; values that the server must allow
///         /// …
///         up: Option<bool> where observed;                          written by OVN, only read here
///     }
///     /// …
///     table Bfd = "BFD" where feature = Bfd { … }                   for the table and all its columns
/// }
/// ```
macro_rules! tables {
    // Name of a column: that of the field unless another one is given.
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };

    // The options after `where`.
    (@need $column:expr, feature $feature:ident) => { $column.feature($crate::feature::Feature::$feature) };
    (@need $column:expr, observed) => { $column.observed() };
    (@need $column:expr, choices [$($word:literal $(: $feature:ident)?),+ $(,)?]) => {
        $column.choices(&[$($crate::table::Choice { word: $word, feature: tables!(@option $($feature)?) }),+])
    };
    (@option) => { None };
    (@option $feature:ident) => { Some($crate::feature::Feature::$feature) };

    (@feature) => { $crate::feature::Feature::Core };
    (@feature $feature:ident) => { $crate::feature::Feature::$feature };

    ($(
        $(#[$table_doc:meta])+
        table $row:ident = $table:literal $(where feature = $table_feature:ident)? {
            $(
                $(#[$doc:meta])+
                $field:ident: $type:ty $(as $name:literal)? $(where $($need:ident $(= $value:tt)?),+)?;
            )+
        }
    )+) => {
        $(
            $(#[$table_doc])+
            #[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
            pub struct $row {
                $($(#[$doc])+ pub $field: $type),+
            }

            // The constant has the name of the field, so that adding a column takes one line.
            #[allow(non_upper_case_globals)]
            impl $row {
                $(
                    $(#[$doc])+
                    pub const $field: $crate::table::Column<Self, $type> =
                        $crate::table::Column::new(tables!(@name $field $($name)?));
                )+
            }

            impl $crate::table::TableRow for $row {
                const TABLE: &'static str = $table;
                const COLUMNS: &'static [&'static str] = &[$(tables!(@name $field $($name)?)),+];
                const DECLARATION: $crate::table::TableDeclaration = $crate::table::TableDeclaration {
                    name: $table,
                    feature: tables!(@feature $($table_feature)?),
                    columns: &[$({
                        let column = $crate::table::ColumnDeclaration::new(
                            tables!(@name $field $($name)?),
                            <$type as $crate::value::ColumnValue>::SHAPE,
                        );
                        $($(let column = tables!(@need column, $need $($value)?);)+)?
                        column
                    }),+],
                    rewrite: $crate::table::rewrite::<Self>,
                };

                fn to_row(&self) -> ovsdb::transaction::Row {
                    let row = ovsdb::transaction::Row::new();
                    $(let row = row.set(
                        tables!(@name $field $($name)?),
                        $crate::value::ColumnValue::to_datum(&self.$field),
                    );)+
                    row
                }

                fn to_sparse_row(&self) -> ovsdb::transaction::Row {
                    let mut row = ovsdb::transaction::Row::new();
                    $(if self.$field != <$type>::default() {
                        row = row.set(
                            tables!(@name $field $($name)?),
                            $crate::value::ColumnValue::to_datum(&self.$field),
                        );
                    })+
                    row
                }

                fn read<D: std::borrow::Borrow<ovsdb::datum::Datum>>(
                    uuid: ovsdb::uuid::Uuid,
                    mut column: impl FnMut(&'static str) -> Option<D>,
                ) -> Result<Self, $crate::table::ReadError> {
                    Ok(Self {
                        $($field: {
                            let name = tables!(@name $field $($name)?);
                            let datum = column(name);
                            let datum = datum.as_ref().map(std::borrow::Borrow::borrow);
                            $crate::table::read_column($table, uuid, name, datum)?
                        }),+
                    })
                }
            }
        )+

        /// For [`crate::Database::modules`].
        pub(crate) const TABLES: &[$crate::table::TableDeclaration] =
            &[$(<$row as $crate::table::TableRow>::DECLARATION),+];
    };
}

pub(crate) use tables;
