{{ config(severity='warn') }}
select order_id from {{ ref('order_totals') }} where items <= 0
