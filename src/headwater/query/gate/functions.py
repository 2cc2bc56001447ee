"""The functions that a statement may call: lists of what is allowed, for each engine.

Left out is what opens files (`read_csv`, `glob`, `input_file_name`), runs a text or a class (`query`, `reflect`,
`java_method`, `json_execute_serialized_sql`), tells of the engine, its settings, variables and users
(`current_setting`, `getvariable`, `duckdb_secrets`, `current_user`), has an effect (`nextval`, `setseed`, `write_log`),
waits (`sleep_ms`), or parses XML. The setting `sql.functions` allows more of them.
"""

from __future__ import annotations

from headwater.query.asking import Engine

_DUCKDB = """
    abs acos acosh add asin asinh atan atan2 atanh bit_count bit_position cbrt ceil ceiling cos cosh cot degrees
    divide even exp factorial fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm
    least least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians random round
    round_even roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc xor
    array_to_string ascii bar base64 bin bit_length bitstring char_length character_length chr concat concat_ws
    contains damerau_levenshtein decode editdist3 encode ends_with error format format_bytes
    formatreadabledecimalsize formatreadablesize from_base64 from_binary from_hex gen_random_uuid get_bit hamming
    hash hex ilike_escape instr jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme len length
    length_grapheme levenshtein like_escape lower lpad ltrim md5 md5_number md5_number_lower md5_number_upper
    mismatches nfc_normalize not_ilike_escape not_like_escape octet_length ord overlay parse_dirname parse_dirpath
    parse_filename parse_formatted_bytes parse_path position prefix printf regexp_escape regexp_extract
    regexp_extract_all regexp_full_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
    repeat replace reverse right right_grapheme rpad rtrim set_bit sha1 sha256 split split_part starts_with
    str_split str_split_regex string_split string_split_regex string_to_array strip_accents strlen strpos substr
    substring substring_grapheme suffix to_base to_base64 to_binary to_hex translate trim ucase unbin unhex unicode
    upper url_decode url_encode uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7
    age ago century current_date current_localtime current_localtimestamp current_timestamp date_add date_diff
    date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear
    days_in_month decade epoch epoch_ms epoch_ns epoch_us era get_current_time get_current_timestamp hour isodow
    isoyear julian last_day localtime localtimestamp make_date make_interval make_time make_timestamp
    make_timestamp_ms make_timestamp_ns make_timestamptz microsecond millennium millisecond minute month monthname
    nanosecond normalized_interval now quarter second strftime strptime time_bucket timezone timezone_hour
    timezone_minute to_centuries to_days to_decades to_hours to_microseconds to_millennia to_milliseconds to_minutes
    to_months to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp try_strptime week
    weekday weekofyear year yearweek
    aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
    array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
    array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof
    array_inner_product array_intersect array_length array_negative_dot_product array_negative_inner_product
    array_pop_back array_pop_front array_position array_prepend array_push_back array_push_front array_reduce
    array_resize array_reverse array_reverse_sort array_select array_slice array_sort array_transform array_unique
    array_value array_where array_zip cardinality element_at equi_width_bins filter flatten generate_series
    generate_subscripts grade_up list_aggr list_aggregate list_any_value list_append list_apply
    list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_cat
    list_concat list_contains list_cosine_distance list_cosine_similarity list_count list_distance list_distinct
    list_dot_product list_element list_entropy list_extract list_filter list_first list_grade_up list_has
    list_has_all list_has_any list_histogram list_indexof list_inner_product list_intersect list_kurtosis
    list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode list_negative_dot_product
    list_negative_inner_product list_pack list_position list_prepend list_product list_reduce list_resize
    list_reverse list_reverse_sort list_select list_sem list_skewness list_slice list_sort list_stddev_pop
    list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop list_var_samp
    list_where list_zip map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract
    map_extract_value map_from_entries map_keys map_values range reduce row struct_concat struct_contains
    struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack struct_position
    struct_update struct_values union_extract union_tag union_value unnest
    array_to_json from_json from_json_strict json json_array json_array_length json_contains json_each json_exists
    json_extract json_extract_path json_extract_path_text json_extract_string json_group_array json_group_object
    json_group_structure json_keys json_merge_patch json_object json_pretty json_quote json_structure json_transform
    json_transform_strict json_tree json_type json_valid json_value row_to_json to_json variant_extract
    variant_typeof
    any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last
    arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg
    bool_and bool_or corr count count_if count_star countif covar_pop covar_samp cume_dist dense_rank entropy favg
    fill first first_value fsum geomean geometric_mean group_concat grouping grouping_id histogram histogram_exact
    is_histogram_other_bin kahan_sum kurtosis kurtosis_pop lag last last_value lead list listagg mad max max_by mean
    median min min_by mode nth_value ntile percent_rank percentile_cont percentile_disc product quantile
    quantile_cont quantile_disc rank rank_dense regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy reservoir_quantile row_number sem skewness stddev stddev_pop stddev_samp string_agg
    sum sum_no_overflow sumkahan var_pop var_samp variance wavg weighted_avg
    can_cast_implicitly coalesce columns constant_or_null enum_code enum_first enum_last enum_range
    enum_range_boundary if ifnull nullif pg_typeof try typeof
"""
_SPARK = """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate any any_value approx_count_distinct
    approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array
    array_agg array_append array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort
    array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh avg base64 bigint bin binary
    bit_and bit_count bit_get bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position bitmap_bucket_number
    bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim cardinality cast cbrt ceil
    ceiling char char_length character_length chr coalesce collation collect_list collect_set concat concat_ws
    contains conv convert_timezone corr cos cosh cot count count_if count_min_sketch covar_pop covar_samp crc32 csc
    cume_dist curdate current_date current_time current_timestamp current_timezone date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear decimal decode degrees dense_rank double e element_at elt encode endswith equal_null every
    exists exp explode explode_outer expm1 extract factorial filter find_in_set first first_value flatten float
    floor forall format_number format_string from_csv from_json from_unixtime from_utc_timestamp get get_json_object
    getbit greatest grouping grouping_id hash hex histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union
    hll_union_agg hour hypot if iff ifnull ilike initcap inline inline_outer instr int is_valid_utf8 is_variant_null
    isnan isnotnull isnull json_array_length json_object_keys json_tuple kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint
    kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
    kll_sketch_to_string_double kll_sketch_to_string_float kurtosis lag last last_day last_value lcase lead least
    left len length levenshtein like listagg ln localtimestamp locate log log10 log1p log2 lower lpad ltrim
    make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz
    make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries map_filter map_from_arrays
    map_from_entries map_keys map_values map_zip_with mask max max_by md5 mean median min min_by minute mod mode
    monotonically_increasing_id month monthname months_between named_struct nanvl negative next_day not now
    nth_value ntile nullif nullifzero nvl nvl2 octet_length overlay parse_json parse_url percent_rank percentile
    percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer position positive pow
    power printf quarter quote radians raise_error rand randn random randstr range rank reduce regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint rlike
    round row_number rpad rtrim schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg sec second
    sentences sequence session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle sign signum sin
    sinh size skewness slice smallint some sort_array soundex spark_partition_id split split_part sqrt stack
    startswith std stddev stddev_pop stddev_samp str_to_map string string_agg struct substr substring
    substring_index sum tan tanh theta_difference theta_intersection theta_intersection_agg theta_sketch_agg
    theta_sketch_estimate theta_union theta_union_agg time_diff time_trunc timestamp timestamp_add timestamp_diff
    timestamp_micros timestamp_millis timestamp_seconds timestampadd timestampdiff tinyint to_binary to_char to_csv
    to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
    to_utc_timestamp to_varchar to_variant_object transform transform_keys transform_values translate trim trunc
    try_add try_aes_decrypt try_avg try_cast try_divide try_element_at try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url try_subtract
    try_sum try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8
    try_variant_get typeof ucase unbase64 unhex uniform unix_date unix_micros unix_millis unix_seconds
    unix_timestamp upper url_decode url_encode uuid validate_utf8 var_pop var_samp variance variant_get weekday
    weekofyear width_bucket window window_time xxhash64 year zeroifnull zip_with
"""

FUNCTIONS = {Engine.DUCKDB: frozenset(_DUCKDB.split()), Engine.SPARK: frozenset(_SPARK.split())}
"""By engine, the names in lower case."""
