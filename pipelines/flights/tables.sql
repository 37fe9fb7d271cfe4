-- Tables that change rarely. load.py writes their rows to rows.sql. An INSERT with an existing key replaces the row, so
-- applying rows.sql again refreshes the tables.

CREATE TABLE IF NOT EXISTS airlines (carrier string, name string, PRIMARY KEY (carrier));

CREATE TABLE IF NOT EXISTS airports (
    faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string, PRIMARY KEY (faa)
);

CREATE TABLE IF NOT EXISTS planes (
    tailnum string, year int, type string, manufacturer string, model string,
    engines int, seats int, speed int, engine string, PRIMARY KEY (tailnum)
);
