-- One Parquet file per day and source. A scheduled run reads the files of its day. A run without an interval reads all
-- waiting files.

CREATE SOURCE IF NOT EXISTS flights (
    year int, month int, day int,
    dep_time int, sched_dep_time int, dep_delay int,
    arr_time int, sched_arr_time int, arr_delay int,
    carrier string, flight int, tailnum string,
    origin string, dest string,
    air_time int, distance int, hour int, minute int,
    time_hour timestamp
) USING parquet OPTIONS (path '${data}/flights/{start:%Y-%m-%d}.parquet');

CREATE SOURCE IF NOT EXISTS weather (
    origin string, year int, month int, day int, hour int,
    temp double, dewp double, humid double,
    wind_dir int, wind_speed double, wind_gust double,
    precip double, pressure double, visib double,
    time_hour timestamp
) USING parquet OPTIONS (path '${data}/weather/{start:%Y-%m-%d}.parquet');
