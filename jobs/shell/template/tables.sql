-- You change a table with INSERT, UPDATE, DELETE and MERGE, here or with `tussock query`. The next epoch updates the
-- views. Each statement of this file runs once, and again if you change its text.

CREATE TABLE IF NOT EXISTS products (
    product string,
    category string,
    price decimal(8,2) NOT NULL,
    PRIMARY KEY (product)
);

INSERT INTO products VALUES
    ('apple', 'fruit', 0.40),
    ('pear', 'fruit', 0.55),
    ('bread', 'bakery', 2.80),
    ('croissant', 'bakery', 1.30),
    ('milk', 'dairy', 1.15),
    ('cheese', 'dairy', 4.90);
