-- Punctuality of each carrier by month.
CREATE MATERIALIZED VIEW IF NOT EXISTS carrier_delays AS
SELECT f.carrier, a.name, f.year, f.month,
       count(*) AS flights,
       count(*) - count(f.arr_delay) AS not_arrived,
       avg(f.dep_delay) AS avg_dep_delay,
       avg(f.arr_delay) AS avg_arr_delay,
       max(f.arr_delay) AS worst_arr_delay
FROM flights f JOIN airlines a ON f.carrier = a.carrier
GROUP BY f.carrier, a.name, f.year, f.month;

-- Flights and delays by manufacturer of the plane.
CREATE MATERIALIZED VIEW IF NOT EXISTS manufacturer_delays AS
SELECT p.manufacturer,
       count(*) AS flights,
       sum(f.distance) AS miles,
       min(p.year) AS oldest_plane,
       avg(f.arr_delay) AS avg_arr_delay
FROM flights f JOIN planes p ON f.tailnum = p.tailnum
GROUP BY p.manufacturer;

-- Delays of the routes with at least ten arrivals, with the name of the destination.
CREATE MATERIALIZED VIEW IF NOT EXISTS route_delays AS
SELECT f.origin, f.dest, d.name AS dest_name,
       count(f.arr_delay) AS arrivals,
       sum(f.arr_delay) AS total_delay,
       avg(f.arr_delay) AS avg_arr_delay
FROM flights f JOIN airports d ON f.dest = d.faa
GROUP BY f.origin, f.dest, d.name
HAVING count(f.arr_delay) >= 10;

-- A view over a view: the ten routes with the largest delay.
CREATE MATERIALIZED VIEW IF NOT EXISTS worst_routes AS
SELECT origin, dest, dest_name, arrivals, avg_arr_delay
FROM route_delays
ORDER BY avg_arr_delay DESC, origin, dest
LIMIT 10;

-- Departure delay by the weather of the hour: a join of two sources.
CREATE MATERIALIZED VIEW IF NOT EXISTS weather_delays AS
SELECT f.origin,
       CASE WHEN w.visib < 1 THEN 'fog' WHEN w.precip > 0 THEN 'rain' WHEN w.wind_speed >= 25 THEN 'wind' ELSE 'fair' END AS weather,
       count(*) AS flights,
       avg(f.dep_delay) AS avg_dep_delay
FROM flights f JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
GROUP BY f.origin,
         CASE WHEN w.visib < 1 THEN 'fog' WHEN w.precip > 0 THEN 'rain' WHEN w.wind_speed >= 25 THEN 'wind' ELSE 'fair' END;
