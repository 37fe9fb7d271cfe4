-- Nexmark's queries 0 to 22, from the public specification. Three of them need something that a view does not have, and
-- their comments name the substitute: 10 (a file sink), 12 (the clock of the reading machine), 13 (a side file).

-- Query 0, pass through.
CREATE MATERIALIZED VIEW IF NOT EXISTS q0 AS
SELECT auction, bidder, price, date_time, extra FROM bid;

-- Query 1, currency conversion: prices in euros.
CREATE MATERIALIZED VIEW IF NOT EXISTS q1 AS
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid;

-- Query 2, selection: the bids on some auctions.
CREATE MATERIALIZED VIEW IF NOT EXISTS q2 AS
SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- Query 3, local item suggestion: the sellers of category 10 in three states.
CREATE MATERIALIZED VIEW IF NOT EXISTS q3 AS
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- Query 4, average price per category: the highest bid on each auction while it was open.
CREATE MATERIALIZED VIEW IF NOT EXISTS q4 AS
SELECT category, avg(final) AS price
FROM (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
)
GROUP BY category;

-- Query 5, hot items: the auctions with the most bids in the last 10 seconds, every 2 seconds.
CREATE MATERIALIZED VIEW IF NOT EXISTS q5 AS
WITH counts AS (
    SELECT w.start AS start_time, auction, num
    FROM (SELECT window(date_time, '10 seconds', '2 seconds') AS w, auction, count(*) AS num FROM bid GROUP BY 1, 2)
)
SELECT c.start_time, c.auction, c.num
FROM counts c JOIN (SELECT start_time, max(num) AS most FROM counts GROUP BY start_time) m
  ON c.start_time = m.start_time AND c.num >= m.most;

-- Query 6, average selling price per seller: over the last 10 auctions with a winner.
CREATE MATERIALIZED VIEW IF NOT EXISTS q6 AS
SELECT seller, id, avg(final) OVER (PARTITION BY seller ORDER BY won, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price
FROM (
    SELECT a.seller, a.id, b.price AS final, b.date_time AS won,
           row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.id) AS place
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
)
WHERE place = 1;

-- Query 7, highest bid per 10 seconds.
CREATE MATERIALIZED VIEW IF NOT EXISTS q7 AS
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b JOIN (
    SELECT w.start AS begins, w.end AS ends, most
    FROM (SELECT window(date_time, '10 seconds') AS w, max(price) AS most FROM bid GROUP BY 1)
) m ON b.price = m.most AND b.date_time >= m.begins AND b.date_time < m.ends;

-- Query 8, new users: persons who registered and opened an auction in the same 10 seconds.
CREATE MATERIALIZED VIEW IF NOT EXISTS q8 AS
SELECT p.id, p.name, p.w.start AS start_time
FROM (SELECT id, name, window(date_time, '10 seconds') AS w FROM person) p
JOIN (SELECT DISTINCT seller, window(date_time, '10 seconds') AS w FROM auction) a
  ON p.id = a.seller AND p.w.start = a.w.start;

-- Query 9, winning bids: the highest bid on each auction while it was open; the first one if several are equal.
CREATE MATERIALIZED VIEW IF NOT EXISTS q9 AS
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra,
       auction, bidder, price, bid_date_time, bid_extra
FROM (
    SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_date_time, b.extra AS bid_extra,
           row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.id) AS place
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
)
WHERE place = 1;

-- Query 10, log to a file system by day and minute. The view has the partition columns; a sink would write files.
CREATE MATERIALIZED VIEW IF NOT EXISTS q10 AS
SELECT auction, bidder, price, date_time, extra, date_format(date_time, 'yyyy-MM-dd') AS dt, date_format(date_time, 'HH:mm') AS hm FROM bid;

-- Query 11, user sessions: bids of each bidder without a gap of 10 seconds.
CREATE MATERIALIZED VIEW IF NOT EXISTS q11 AS
SELECT bidder, w.start AS start_time, w.end AS end_time, bid_count
FROM (SELECT bidder, session_window(date_time, '10 seconds') AS w, count(*) AS bid_count FROM bid GROUP BY 1, 2);

-- Query 12, bids of each bidder per 10 seconds of the reader's clock. A row has no reading time, because a view must
-- equal its SELECT at any time. The time of the bid replaces it.
CREATE MATERIALIZED VIEW IF NOT EXISTS q12 AS
SELECT bidder, w.start AS start_time, w.end AS end_time, bid_count
FROM (SELECT bidder, window(date_time, '10 seconds') AS w, count(*) AS bid_count FROM bid GROUP BY 1, 2);

-- Query 13, a join with a side input: the table side_input instead of a file.
CREATE MATERIALIZED VIEW IF NOT EXISTS q13 AS
SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bid b JOIN side_input s ON b.auction % 1000 = s.key;

-- Query 14, calculation: the time of day and the number of c in a text, for bids within a price range.
CREATE MATERIALIZED VIEW IF NOT EXISTS q14 AS
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- Query 15, bidding statistics per day: distinct bidders and auctions in three price ranges.
CREATE MATERIALIZED VIEW IF NOT EXISTS q15 AS
SELECT date_format(date_time, 'yyyy-MM-dd') AS day,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY date_format(date_time, 'yyyy-MM-dd');

-- Query 16, the same per channel and day.
CREATE MATERIALIZED VIEW IF NOT EXISTS q16 AS
SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS day, max(date_format(date_time, 'HH:mm')) AS minute,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY channel, date_format(date_time, 'yyyy-MM-dd');

-- Query 17, auction statistics per day.
CREATE MATERIALIZED VIEW IF NOT EXISTS q17 AS
SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY auction, date_format(date_time, 'yyyy-MM-dd');

-- Query 18, the last bid of each bidder on each auction.
CREATE MATERIALIZED VIEW IF NOT EXISTS q18 AS
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, id DESC) AS place FROM bid)
WHERE place <= 1;

-- Query 19, the ten highest bids on each auction.
CREATE MATERIALIZED VIEW IF NOT EXISTS q19 AS
SELECT auction, bidder, price, channel, url, date_time, extra, place
FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, id) AS place FROM bid)
WHERE place <= 10;

-- Query 20, the bids on auctions of category 10, with the auction.
CREATE MATERIALIZED VIEW IF NOT EXISTS q20 AS
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra,
       a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_date_time, a.expires, a.seller, a.category,
       a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10;

-- Query 21, the channel id: by name for four channels, from the URL for the others.
CREATE MATERIALIZED VIEW IF NOT EXISTS q21 AS
SELECT auction, bidder, price, channel,
       CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '';

-- Query 22, the directories of the URL.
CREATE MATERIALIZED VIEW IF NOT EXISTS q22 AS
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid;
